// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func eventBehaviours() []Behaviour {
	return []Behaviour{
		{Name: "creates, updates and deletes arrive in order", run: eventsInOrder},
		{Name: "who comes late is told what there is", run: lateSubscriber},
		{Name: "a watch with a selector sees objects come and go with their labels", run: selectedEvents},
		{Name: "an object that was created anew is another one", run: recreated},
		{Name: "finalizers hold back a deletion", run: finalizersHoldBack},
		{Name: "an update that changes nothing is no event", run: noChange},
		{Name: "deleting all of a selection tells of each", run: deleteAll},
	}
}

func eventsInOrder(e *env) {
	e.watch()
	f := e.follow()
	e.create("red", "a")
	f.expect("Added a red")
	e.paint("a", "blue")
	f.expect("Updated a blue")
	e.delete("a")
	f.expect("Deleted a blue")
	e.create("red", "b")
	f.expect("Added b red")
}

func lateSubscriber(e *env) {
	e.create("red", "a", "b")
	e.watch()
	e.follow().expectAny("Added a red", "Added b red")
}

func selectedEvents(e *env) {
	e.create("red", "a")
	e.create("blue", "b")
	e.watch(client.MatchingLabels{"color": "blue"})
	f := e.follow()
	f.expect("Added b blue")
	e.paint("a", "blue")
	f.expect("Added a blue")
	e.paint("b", "red")
	f.expect("Deleted b blue")
	e.delete("b")
	e.delete("a")
	f.expect("Deleted a blue")
}

func recreated(e *env) {
	e.create("red", "a")
	before := &corev1.ConfigMap{}
	require.NoError(e, e.admin.Get(e.Context(), e.named("a"), before))
	w := e.watch()
	f := e.follow()
	f.expect("Added a red")
	e.delete("a")
	f.expect("Deleted a red")
	e.create("red", "a")
	f.expect("Added a red")
	after := &corev1.ConfigMap{}
	require.NoError(e, e.reader().Get(e.Context(), e.named("a"), after))
	require.NotEqual(e, before.UID, after.UID)
	require.NoError(e, w.WaitForVersion(e.Context(), after.ResourceVersion))
}

func finalizersHoldBack(e *env) {
	cm := e.configMap("a", "red")
	cm.Finalizers = []string{"example.com/hold"}
	require.NoError(e, e.admin.Create(e.Context(), cm))
	e.watch()
	f := e.follow()
	f.expect("Added a red")
	e.delete("a")
	f.expect("Updated a red")
	require.NoError(e, e.admin.Get(e.Context(), e.named("a"), cm))
	require.NotNil(e, cm.DeletionTimestamp)
	e.delete("a") // again: there is nothing new
	require.NoError(e, e.admin.Get(e.Context(), e.named("a"), cm))
	cm.Finalizers = append(cm.Finalizers, "example.com/late")
	require.Error(e, e.admin.Update(e.Context(), cm), "no finalizer can be added now")
	cm.Finalizers = nil
	require.NoError(e, e.admin.Update(e.Context(), cm))
	f.expect("Deleted a red")
	require.NoError(e, client.IgnoreNotFound(e.admin.Get(e.Context(), e.named("a"), cm)))
}

func noChange(e *env) {
	e.create("red", "a")
	e.watch()
	f := e.follow()
	f.expect("Added a red")
	cm := &corev1.ConfigMap{}
	require.NoError(e, e.admin.Get(e.Context(), e.named("a"), cm))
	rv := cm.ResourceVersion
	require.NoError(e, e.admin.Update(e.Context(), cm))
	require.Equal(e, rv, cm.ResourceVersion)
	require.NoError(e, e.admin.Patch(e.Context(),
		cm, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"color":"red"}}`))))
	require.Equal(e, rv, cm.ResourceVersion)
	e.paint("a", "blue")
	f.expect("Updated a blue")
}

func deleteAll(e *env) {
	e.create("red", "a", "b")
	e.create("blue", "c")
	e.watch()
	f := e.follow()
	f.expectAny("Added a red", "Added b red", "Added c blue")
	require.NoError(e, e.admin.DeleteAllOf(e.Context(), &corev1.ConfigMap{}, client.InNamespace(e.ns),
		client.MatchingLabels{"color": "red"}))
	f.expectAny("Deleted a red", "Deleted b red")
	require.Equal(e, []string{"c"}, e.names())
}
