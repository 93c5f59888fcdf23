// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

func reads() []Behaviour {
	return []Behaviour{
		{Name: "reads are live without a watch", run: readsAreLive},
		{Name: "get and list agree in three forms, live and cached", run: threeForms},
		{Name: "one list and one watch for all forms", run: oneListAndWatch},
		{Name: "reads of the cache alone say what is missing", run: cacheOnlyErrors},
		{Name: "pages of a live list show one moment", run: pages},
		{Name: "label selectors select, live and cached", run: labelSelectors},
		{Name: "field selectors select by name, and refuse what is not known", run: fieldSelectors},
		{Name: "an indexed field selects from the cache", run: fieldIndex},
		{Name: "a read that must not be older than a write waits for it", run: readYourWrites},
		{Name: "watch and read serves before and after the sync", run: watchAndRead},
		{Name: "a get of what is not there is not found", run: notFound},
		{Name: "the status tells what is there", run: statusTells},
	}
}

func readsAreLive(e *env) {
	e.create("red", "a")
	var origin clustercache.Origin
	got := &corev1.ConfigMap{}
	require.NoError(e, e.reader().Get(e.Context(), e.named("a"), got, &origin))
	require.Equal(e, "red", got.Data["color"])
	require.False(e, origin.Cached)
	require.NotEmpty(e, got.UID)
	require.NotEmpty(e, got.ResourceVersion)
	require.False(e, got.CreationTimestamp.IsZero())
	require.Equal(e, []string{"a"}, e.names())
	e.paint("a", "blue")
	require.NoError(e, e.reader().Get(e.Context(), e.named("a"), got))
	require.Equal(e, "blue", got.Data["color"])
}

func threeForms(e *env) {
	e.create("red", "a", "b")
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	check := func(cached bool) {
		untyped, partial := &unstructured.Unstructured{}, clustercache.Kind(gvk)
		untyped.SetGroupVersionKind(gvk)
		typed := &corev1.ConfigMap{}
		for _, obj := range []client.Object{typed, untyped, partial} {
			var origin clustercache.Origin
			require.NoError(e, e.reader().Get(e.Context(), e.named("a"), obj, &origin))
			require.Equal(e, cached, origin.Cached)
			require.Equal(e, "red", obj.GetLabels()["color"])
		}
		require.Equal(e, typed.UID, untyped.GetUID())
		require.Equal(e, typed.ResourceVersion, partial.ResourceVersion)
		lists := []client.ObjectList{&corev1.ConfigMapList{}, &unstructured.UnstructuredList{},
			&metav1.PartialObjectMetadataList{}}
		lists[1].GetObjectKind().SetGroupVersionKind(gvk.GroupVersion().WithKind("ConfigMapList"))
		lists[2].GetObjectKind().SetGroupVersionKind(gvk.GroupVersion().WithKind("ConfigMapList"))
		for _, list := range lists {
			require.NoError(e, e.reader().List(e.Context(), list, client.InNamespace(e.ns),
				client.MatchingLabels{"color": "red"}))
			require.NotEmpty(e, list.GetResourceVersion())
			require.Equal(e, 2, meta.LenList(list))
		}
	}
	check(false)
	e.watch()
	check(true)
}

func oneListAndWatch(e *env) {
	e.create("red", "a")
	lists, watches := e.cluster.Lists("configmaps"), e.cluster.Watches("configmaps")
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	untyped := &unstructured.Unstructured{}
	untyped.SetGroupVersionKind(gvk)
	for _, obj := range []client.Object{&corev1.ConfigMap{}, untyped, clustercache.Kind(gvk), &corev1.ConfigMap{}} {
		w := e.take(obj, client.InNamespace(e.ns))
		require.NoError(e, w.WaitForSync(e.Context()))
	}
	require.Equal(e, []string{"a"}, e.names(clustercache.CacheOnly))
	require.Equal(e, lists+1, e.cluster.Lists("configmaps"))
	if !e.cluster.Streams() {
		watches++ // it begins a moment after the list
	}
	e.eventually(func() bool { return e.cluster.Watches("configmaps") >= watches }, "watched")
	require.Equal(e, watches, e.cluster.Watches("configmaps"), "a streamed list goes on as the watch")
}

func cacheOnlyErrors(e *env) {
	e.create("red", "a")
	got := &corev1.ConfigMap{}
	require.ErrorIs(e, e.reader().Get(e.Context(), e.named("a"), got, clustercache.CacheOnly),
		clustercache.ErrNotWatched)
	e.watch()
	require.NoError(e, e.reader().Get(e.Context(), e.named("a"), got, clustercache.CacheOnly))
	list := &corev1.ConfigMapList{}
	err := e.reader().List(e.Context(), list, client.InNamespace(e.ns), client.MatchingFields{"data.size": "1"},
		clustercache.CacheOnly)
	require.ErrorIs(e, err, clustercache.ErrUnsupported)
	err = e.reader().List(e.Context(), list, clustercache.CacheOnly)
	require.ErrorIs(e, err, clustercache.ErrNotWatched, "all namespaces are not watched")
	unknown := client.ObjectKey{Name: "nobody"}
	require.ErrorIs(e, e.cc.Cluster(unknown).Reader().Get(e.Context(), e.named("a"), got),
		clustercache.ErrUnknownCluster)
}

func pages(e *env) {
	for i := range 7 {
		e.create("red", fmt.Sprintf("page-%d", i))
	}
	red := client.MatchingLabels{"color": "red"}
	var names []string
	var rv string
	var next string
	for page := range 3 {
		list := &corev1.ConfigMapList{}
		require.NoError(e, e.reader().List(e.Context(), list, client.InNamespace(e.ns), red, client.Limit(3),
			client.Continue(next)))
		if page == 0 {
			rv = list.ResourceVersion
			e.delete("page-6")
			e.create("red", "page-5-later")
		}
		require.Equal(e, rv, list.ResourceVersion)
		for _, o := range list.Items {
			names = append(names, o.Name)
		}
		next = list.Continue
	}
	require.Empty(e, next)
	require.Equal(e, []string{"page-0", "page-1", "page-2", "page-3", "page-4", "page-5", "page-6"}, names)
	err := e.reader().List(e.Context(), &corev1.ConfigMapList{}, client.Continue("nonsense"))
	require.True(e, apierrors.IsBadRequest(err), "%v", err)
}

func labelSelectors(e *env) {
	e.create("red", "a", "b")
	e.create("blue", "c")
	for range 2 {
		require.Equal(e, []string{"c"}, e.names(client.MatchingLabels{"color": "blue"}))
		require.ElementsMatch(e, []string{"a", "b"}, e.names(client.MatchingLabels{"color": "red"}))
		require.ElementsMatch(e, []string{"a", "b", "c"}, e.names(client.HasLabels{"color"}))
		e.watch()
	}
}

func fieldSelectors(e *env) {
	e.create("red", "a", "b")
	for range 2 {
		require.Equal(e, []string{"b"}, e.names(client.MatchingFields{"metadata.name": "b"}))
		e.watch()
	}
	err := e.reader().List(e.Context(), &corev1.ConfigMapList{}, client.InNamespace(e.ns),
		client.MatchingFields{"data.size": "1"})
	require.True(e, apierrors.IsBadRequest(err), "%v", err)
}

func fieldIndex(e *env) {
	e.create("red", "a", "b")
	e.create("blue", "c")
	w := e.watch()
	blue := client.MatchingFields{"data.color": "blue"}
	require.Equal(e, []string{"c"}, e.names(blue, clustercache.CacheOnly))
	require.NoError(e, w.WaitForVersion(e.Context(), e.paint("a", "blue").ResourceVersion))
	names := e.names(blue, clustercache.CacheOnly)
	slices.Sort(names)
	require.Equal(e, []string{"a", "c"}, names)
}

func readYourWrites(e *env) {
	e.create("red", "a")
	w := e.watch()
	cm := &corev1.ConfigMap{}
	require.NoError(e, e.client().Get(e.Context(), e.named("a"), cm))
	cm.Data["color"] = "blue"
	require.NoError(e, e.client().Update(e.Context(), cm))
	got := &corev1.ConfigMap{}
	require.NoError(e, e.reader().Get(e.Context(), e.named("a"), got, clustercache.NotOlderThan(cm.ResourceVersion)))
	require.Equal(e, "blue", got.Data["color"])
	require.NoError(e, w.WaitForVersion(e.Context(), cm.ResourceVersion))
	var origin clustercache.Origin
	require.NoError(e, e.reader().Get(e.Context(), e.named("a"), got, clustercache.NotOlderThan(cm.ResourceVersion),
		&origin))
	require.True(e, origin.Cached)
	require.Equal(e, cm.ResourceVersion, got.ResourceVersion)
}

func watchAndRead(e *env) {
	e.create("red", "a")
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	got := &corev1.ConfigMap{}
	e.eventually(func() bool {
		reader, synced, err := e.cc.Cluster(e.key()).WatchAndRead(e.Context(), gvk)
		require.NoError(e, err)
		require.NoError(e, reader.Get(e.Context(), e.named("a"), got))
		require.Equal(e, "red", got.Data["color"])
		return synced
	}, "synced")
}

func notFound(e *env) {
	got := &corev1.ConfigMap{}
	for range 2 {
		err := e.reader().Get(e.Context(), e.named("nobody"), got)
		require.True(e, apierrors.IsNotFound(err), "%v", err)
		e.watch()
	}
	err := e.client().Delete(e.Context(), e.configMap("nobody", ""))
	require.True(e, apierrors.IsNotFound(err), "%v", err)
}

func statusTells(e *env) {
	e.watch()
	s := e.status()
	require.True(e, s.Connected)
	require.Equal(e, status.PhaseReady, s.Phase)
	kubeSystem := &corev1.Namespace{}
	require.NoError(e, e.admin.Get(e.Context(), client.ObjectKey{Name: "kube-system"}, kubeSystem))
	require.Equal(e, string(kubeSystem.UID), s.UID)
	require.Equal(e, 1, s.Connects)
	require.Equal(e, 1, s.Watches)
	require.Equal(e, 1, s.Synced)
	require.NoError(e, s.LastError)
	watches, err := e.cc.Cluster(e.key()).WatchStatuses()
	require.NoError(e, err)
	require.Len(e, watches, 1)
	require.Equal(e, "ConfigMap", watches[0].GVK.Kind)
	require.Equal(e, e.ns, watches[0].Informer.Key.Namespace)
}
