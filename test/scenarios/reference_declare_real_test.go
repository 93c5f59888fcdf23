// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

// TestDeclarations proves what an operator needs that declares the needs of its
// objects and never stops anything (000), and what an engine needs whose set of
// watches is replaced (004).
func TestDeclarations(t *testing.T) {
	t.Parallel()
	clusters := testenv.Start(t, 2)
	for _, b := range []struct {
		name  string
		prove func(t *testing.T, hub, remote *testenv.Cluster)
	}{
		{"000.10 what nobody uses ends in bounded time and what is used never does", unusedEndsUsedStays},
		{"000.11 what never synced, never existed or is not served ends too", unsyncedEnds},
		{"000.12 what is declared again after its end is fresh and tells of changes", declaredAgain},
		{"000.14 it can be asked what is watched and for whom", usageIsShown},
		{"000.15 when the first owner fails and goes, the next one gets events", nextOwnerRepairs},
		{"000.16 when the hub does not answer nothing ends, and looking goes on", hubErrorKeeps},
		{"004.1 a set is replaced, and what is in both is not touched", setIsReplaced},
		{"004.2 the same set costs no request", sameSetIsFree},
		{"004.3 an event of what was replaced is over before the first one of what replaces it", replacedIsDrained},
		{"004.4 declarations of one owner are in order, the last wins, and owners do not wait for each other",
			lastDeclarationWins},
		{"004.5 a failure to start is told and shown, ends nothing, and heals", startFailureIsTold},
		{"004.6 selectors and namespaces reach the server and tell informers apart", selectorsReachTheServer},
		{"004.7 a kind that is not served is named and found once it is", kindIsFoundLater},
	} {
		t.Run(b.name, func(t *testing.T) { b.prove(t, clusters[0], clusters[1]) })
	}
}

func west(remote *testenv.Cluster) map[string]*rest.Config {
	return map[string]*rest.Config{"west": remote.Config()}
}

func unusedEndsUsedStays(t *testing.T, hub, remote *testenv.Cluster) {
	d := declaring(t, hub.Client(), west(remote), hub, remote)
	create(t, hub, configMap(d.namespace, "stays", ""), configMap(d.namespace, "goes", ""))
	d.declareSynced(t, "stays", d.target("west", &corev1.ConfigMap{}))
	d.declareSynced(t, "goes", d.target("west", &corev1.ConfigMap{}), d.target("west", &corev1.Secret{}))
	for range 4 {
		_, err := d.cc.Sweep(t.Context())
		require.NoError(t, err)
	}
	eventually(t, "looked at several times", func() bool {
		gets, err := hub.Requests(testenv.Verb("get"), testenv.Resource("configmaps"))
		require.NoError(t, err)
		n := 0
		for _, r := range gets {
			if r.Namespace == d.namespace && r.Name == "stays" {
				n++
			}
		}
		return n >= 8
	})
	require.Equal(t, []string{"ConfigMap", "Secret"}, d.uses("west"))

	require.NoError(t, hub.Client().Delete(t.Context(), configMap(d.namespace, "goes", "")))
	began := time.Now()
	eventually(t, "what the deleted owner used ends",
		func() bool { return len(d.uses("west")) == 1 && d.informers("west") == 1 })
	t.Logf("gone %s after the owner", time.Since(began).Round(time.Millisecond))
	create(t, remote, configMap(d.namespace, "new", ""))
	eventually(t, "the other one is alive", func() bool {
		name := client.ObjectKey{Namespace: d.namespace, Name: "new"}
		return d.cc.Cluster(key("west")).Reader().Get(t.Context(), name, &corev1.ConfigMap{},
			clustercache.CacheOnly) == nil
	})
	lists, _ := listed(t, remote, "configmaps")
	require.Equal(t, 1, lists)
}

func unsyncedEnds(t *testing.T, hub, remote *testenv.Cluster) {
	proxy := remote.Proxy(t)
	proxy.Blackhole(faultproxy.Both)
	d := declaring(t, nil, map[string]*rest.Config{"west": remote.Config(), "silent": proxy.Config()}, hub, remote)
	absent := clustercache.Kind(schema.GroupVersionKind{Group: "absent.example.com", Version: "v1", Kind: "Absent"})
	d.declare(t, "o", d.target("silent", &corev1.ConfigMap{}), d.target("nowhere", &corev1.ConfigMap{}),
		d.target("west", absent))
	eventually(t, "the missing kind is known", func() bool {
		for _, use := range d.cc.Declared(d.owner("o")) {
			if use.Key.Cluster == key("west") {
				return meta.IsNoMatchError(use.LastError)
			}
		}
		return false
	})
	require.Len(t, d.cc.Usage().Uses, 3)
	d.cc.Drop(d.owner("o"))
	began := time.Now()
	eventually(t, "all of it ends", func() bool { return len(d.cc.Usage().Uses) == 0 })
	require.Less(t, time.Since(began), 20*time.Second)
	require.NotContains(t, d.cc.Clusters(), key("nowhere"))
}

func declaredAgain(t *testing.T, hub, remote *testenv.Cluster) {
	d := declaring(t, nil, west(remote), hub, remote)
	feed := d.follow(t)
	create(t, remote, configMap(d.namespace, "one", "1"))
	d.declareSynced(t, "o", d.target("west", &corev1.ConfigMap{}))
	eventually(t, "told of what there is", func() bool { return feed.value("west/one") == "1" })
	d.declare(t, "o")
	eventually(t, "it ends", func() bool { return d.informers("west") == 0 })
	update(t, remote, configMap(d.namespace, "one", "2"))
	create(t, remote, configMap(d.namespace, "two", "1"))

	d.declareSynced(t, "o", d.target("west", &corev1.ConfigMap{}))
	got := &corev1.ConfigMap{}
	require.NoError(t, d.cc.Cluster(key("west")).Reader().Get(t.Context(),
		client.ObjectKey{Namespace: d.namespace, Name: "one"},
		got, clustercache.CacheOnly))
	require.Equal(t, "2", got.Data["value"])
	eventually(t, "told of both", func() bool { return feed.value("west/one") == "2" && feed.value("west/two") == "1" })
	update(t, remote, configMap(d.namespace, "two", "3"))
	eventually(t, "told of changes", func() bool { return feed.value("west/two") == "3" })
	lists, _ := listed(t, remote, "configmaps")
	require.Equal(t, 2, lists)
}

func usageIsShown(t *testing.T, hub, remote *testenv.Cluster) {
	d := declaring(t, hub.Client(), west(remote), hub, remote)
	create(t, hub, configMap(d.namespace, "o", ""), configMap(d.namespace, "p", ""))
	d.declareSynced(t, "o", d.target("west", &corev1.ConfigMap{}), d.target("west", &corev1.Secret{}))
	d.declareSynced(t, "p", d.target("west", &corev1.ConfigMap{}))
	_, _, err := d.cc.Cluster(key("west")).WatchAndRead(t.Context(),
		schema.GroupVersionKind{Version: "v1", Kind: "Service"})
	require.NoError(t, err)
	text, err := json.Marshal(d.cc.Usage())
	require.NoError(t, err)
	var usage struct {
		Owners []struct {
			Owner struct{ Kind, Namespace, Name string }
			Uses  []struct{ Kind string }
		}
		Uses []struct {
			Key struct {
				Cluster                     struct{ Namespace, Name string }
				APIVersion, Kind, Namespace string
			}
			Owners   []struct{ Name string }
			LastRead time.Time
			Synced   bool
		}
	}
	require.NoError(t, json.Unmarshal(text, &usage))
	require.Len(t, usage.Owners, 2)
	require.Len(t, usage.Owners[0].Uses, 2)
	require.Len(t, usage.Uses, 3)
	first := usage.Uses[0]
	require.Equal(t, []string{"west", "ConfigMap", d.namespace},
		[]string{first.Key.Cluster.Name, first.Key.Kind, first.Key.Namespace})
	require.Len(t, first.Owners, 2)
	require.True(t, first.Synced)
	require.Equal(t, "Service", usage.Uses[2].Key.Kind)
	require.NotZero(t, usage.Uses[2].LastRead)
}

func nextOwnerRepairs(t *testing.T, hub, remote *testenv.Cluster) {
	user, err := remote.AddUser(t.Context(), "declares")
	require.NoError(t, err)
	d := declaring(t, nil, map[string]*rest.Config{"west": user.Config()}, hub, remote)
	feed := d.follow(t)
	create(t, remote, configMap(d.namespace, "one", "1"))

	d.declare(t, "first", d.target("west", &corev1.ConfigMap{}))
	require.True(t, apierrors.IsForbidden(targetErrors(t, d.waitForSync(t, "first", time.Minute))["ConfigMap"]))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.cc.Declare(cancelled, d.owner("first"), d.target("west", &corev1.Secret{}))
	require.ErrorIs(t, err, context.Canceled)
	d.declare(t, "second", d.target("west", &corev1.ConfigMap{}), d.target("west", &corev1.Secret{}))
	d.cc.Drop(d.owner("first"))

	require.NoError(t, user.Grant(t.Context(), rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps", "secrets", "namespaces"},
		Verbs: []string{"get", "list", "watch"},
	}))
	eventually(t, "it heals", func() bool { return d.waitForSync(t, "second", time.Second) == nil })
	eventually(t, "told of what there is", func() bool { return feed.value("west/one") == "1" })
	update(t, remote, configMap(d.namespace, "one", "2"))
	eventually(t, "told of changes", func() bool { return feed.value("west/one") == "2" })
}

func hubErrorKeeps(t *testing.T, hub, remote *testenv.Cluster) {
	way := hub.Proxy(t)
	hubClient, err := client.New(way.Config(), client.Options{})
	require.NoError(t, err)
	d := declaring(t, hubClient, west(remote), hub, remote)
	create(t, hub, configMap(d.namespace, "o", ""))
	d.declareSynced(t, "o", d.target("west", &corev1.ConfigMap{}))

	way.Refuse()
	require.NoError(t, hub.Client().Delete(t.Context(), configMap(d.namespace, "o", "")))
	for range 4 {
		_, err = d.cc.Sweep(t.Context())
		require.ErrorContains(t, err, d.owner("o").String())
	}
	eventually(t, "the failure is shown", func() bool {
		owners := d.cc.Usage().Owners
		return len(owners) == 1 && owners[0].LastError != nil && owners[0].GoneSince.IsZero()
	})
	require.Equal(t, []string{"ConfigMap"}, d.uses("west"))

	require.NoError(t, way.Heal())
	eventually(t, "it ends once the hub says so",
		func() bool { return d.informers("west") == 0 && len(d.cc.Usage().Owners) == 0 })
}

func setIsReplaced(t *testing.T, hub, remote *testenv.Cluster) {
	d := declaring(t, nil, west(remote), hub, remote)
	a, b, c := d.target("west", &corev1.ConfigMap{}), d.target("west", &corev1.Secret{}),
		d.target("west", &corev1.Service{})
	d.declareSynced(t, "o", a, b)
	done := d.declare(t, "o", b, c)
	require.Equal(t, "Service", done.Added[0].GVK.Kind)
	require.Equal(t, "ConfigMap", done.Removed[0].GVK.Kind)
	require.NoError(t, d.waitForSync(t, "o", time.Minute))
	eventually(t, "the first one ends", func() bool { return d.informers("west") == 2 })
	require.Equal(t, []string{"Secret", "Service"}, d.uses("west"))
	create(t, remote, &corev1.Secret{ObjectMeta: configMap(d.namespace, "one", "").ObjectMeta})
	eventually(t, "the second goes on", func() bool {
		list := &corev1.SecretList{}
		err := d.cc.Cluster(key("west")).Reader().List(t.Context(), list, client.InNamespace(d.namespace),
			clustercache.CacheOnly)
		return err == nil && len(list.Items) > 0
	})
	for _, resource := range []string{"configmaps", "secrets", "services"} {
		require.Len(t, d.asked(t, remote, resource), 1, resource)
	}
}

func sameSetIsFree(t *testing.T, hub, remote *testenv.Cluster) {
	d := declaring(t, nil, both(hub, remote), hub, remote)
	set := []clustercache.Target{
		d.target("east", &corev1.ConfigMap{}), d.target("west", &corev1.ConfigMap{}),
		d.target("west", &corev1.Secret{}, client.MatchingLabels{"a": "1"}),
	}
	d.declareSynced(t, "o", set...)
	// If lists come in pages, an informer has synced before it watches.
	eventually(t, "each of them watches", func() bool { return watchRequests(t, hub, remote) == len(set) })
	before := objectRequests(t, hub, remote)
	for range 50 {
		done := d.declare(t, "o", set[2], set[0], set[1], set[0])
		require.Empty(t, done.Added)
		require.Empty(t, done.Removed)
		require.True(t, done.Synced)
	}
	d.declare(t, "another", set[0], set[1])
	require.Equal(t, before, objectRequests(t, hub, remote))
}

func replacedIsDrained(t *testing.T, hub, remote *testenv.Cluster) {
	d := declaring(t, nil, west(remote), hub, remote)
	object := configMap(d.namespace, "same", "1")
	object.Labels = map[string]string{"a": "1", "b": "1"}
	create(t, remote, object)
	first, second := d.target("west", &corev1.ConfigMap{}, client.MatchingLabels{"a": "1"}),
		d.target("west", &corev1.ConfigMap{}, client.MatchingLabels{"b": "1"})

	var running, overlaps, calls atomic.Int64
	held, goOn := make(chan struct{}), make(chan struct{})
	source := controller.ObjectSource(d.cc, events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}},
		func(_ context.Context, _ client.ObjectKey, _ client.Object) []Request {
			if running.Add(1) > 1 {
				overlaps.Add(1)
			}
			defer running.Add(-1)
			if calls.Add(1) == 1 {
				close(held)
				<-goOn
			}
			return nil
		})
	control(t, newJournal(), 1, source)
	d.declareSynced(t, "o", first)
	<-held
	d.declareSynced(t, "o", second)
	eventually(t, "the first one ends", func() bool { return d.informers("west") == 1 })
	require.EqualValues(t, 1, calls.Load(), "told of the same object while the call for what was replaced is running")
	close(goOn)
	eventually(t, "told by the second", func() bool { return calls.Load() > 1 })
	before := calls.Load()
	object.Data["value"] = "2"
	update(t, remote, object)
	eventually(t, "told of changes", func() bool { return calls.Load() > before })
	require.Zero(t, overlaps.Load())
}

func lastDeclarationWins(t *testing.T, hub, remote *testenv.Cluster) {
	proxy := remote.Proxy(t)
	proxy.Blackhole(faultproxy.Both)
	d := declaring(t, nil, map[string]*rest.Config{"west": remote.Config(), "silent": proxy.Config()}, hub, remote)
	all := []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{}}
	var declarers sync.WaitGroup
	for i := range 8 {
		declarers.Go(func() {
			for j := range 10 {
				_, err := d.cc.Declare(t.Context(), d.owner("o"), d.target("west", all[i%3]),
					d.target("west", all[(i+j)%3]), d.target("silent", all[j%3]))
				if err == nil {
					_, err = d.cc.Declare(t.Context(), d.owner(fmt.Sprint(i)), d.target("west", all[i%3]))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	declarers.Wait() // none of them may wait for the silent cluster
	d.declareSynced(t, "o", d.target("west", all[2]))
	for i := range 8 {
		require.NoError(t, d.waitForSync(t, fmt.Sprint(i), time.Minute))
		uses := d.cc.Declared(d.owner(fmt.Sprint(i)))
		require.Len(t, uses, 1)
		require.True(t, uses[0].Synced)
		d.cc.Drop(d.owner(fmt.Sprint(i)))
	}
	eventually(t, "what came last stays alone",
		func() bool { return d.informers("west") == 1 && len(d.cc.Usage().Uses) == 1 })
	require.Equal(t, []string{"Service"}, d.uses("west"))
	require.Len(t, d.asked(t, remote, "services"), 1)
}

func startFailureIsTold(t *testing.T, hub, remote *testenv.Cluster) {
	user, err := remote.AddUser(t.Context(), "starts", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"},
		Verbs: []string{"get", "list", "watch"},
	})
	require.NoError(t, err)
	proxy := remote.Proxy(t)
	proxy.Refuse()
	d := declaring(t, nil, map[string]*rest.Config{"west": user.Config(), "down": proxy.Config()}, hub, remote)
	d.declare(t, "o", d.target("west", &corev1.ConfigMap{}), d.target("west", &corev1.Secret{}),
		d.target("down", &corev1.Service{}))
	failed := targetErrors(t, d.waitForSync(t, "o", 10*time.Second))
	require.Len(t, failed, 2)
	require.True(t, apierrors.IsForbidden(failed["Secret"]))
	require.Equal(t, key("west"), failed["Secret"].Cluster)
	require.ErrorIs(t, failed["Service"], clustercache.ErrNotConnected)
	require.ErrorIs(t, failed["Service"], context.DeadlineExceeded)
	for _, use := range d.cc.Declared(d.owner("o")) {
		require.Equal(t, use.Key.GVK.Kind == "ConfigMap", use.Synced)
		require.Equal(t, use.Key.GVK.Kind == "ConfigMap", use.Message == "", use.Message)
	}

	require.NoError(t, user.Grant(t.Context(), rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps", "secrets", "namespaces"},
		Verbs: []string{"get", "list", "watch"},
	}))
	require.NoError(t, proxy.Heal())
	d.declare(t, "o", d.target("west", &corev1.ConfigMap{}), d.target("west", &corev1.Secret{}),
		d.target("down", &corev1.Service{}))
	eventually(t, "a retry works", func() bool { return d.waitForSync(t, "o", time.Second) == nil })
	for _, use := range d.cc.Declared(d.owner("o")) {
		require.True(t, use.Synced)
	}
}

func selectorsReachTheServer(t *testing.T, hub, remote *testenv.Cluster) {
	d := declaring(t, nil, west(remote), hub, remote)
	for name, labels := range map[string]map[string]string{"one": {"a": "1"}, "two": {"a": "2"}} {
		cm := configMap(d.namespace, name, "")
		cm.Labels = labels
		create(t, remote, cm)
	}
	d.declareSynced(t, "o",
		d.target("west", &corev1.ConfigMap{}, client.MatchingLabels{"a": "1"}),
		d.target("west", &corev1.ConfigMap{}, client.MatchingFields{"metadata.name": "two"}),
		clustercache.Target{Cluster: key("west"), Kind: &corev1.Secret{},
			Options: []client.ListOption{client.InNamespace("kube-public")}},
	)
	var asked []string
	for _, q := range d.asked(t, remote, "configmaps") {
		asked = append(asked, q.Get("path")+" "+q.Get("labelSelector")+" "+q.Get("fieldSelector"))
	}
	path := "/api/v1/namespaces/" + d.namespace + "/configmaps "
	require.ElementsMatch(t, []string{path + "a=1 ", path + " metadata.name=two"}, asked)
	require.Equal(t, "/api/v1/namespaces/kube-public/secrets", d.asked(t, remote, "secrets")[0].Get("path"))
	s, err := d.cc.Cluster(key("west")).Status()
	require.NoError(t, err)
	require.Equal(t, 3, s.Informers)

	before := objectRequests(t, remote)
	for field, bad := range map[string]client.ListOption{
		"LabelSelector": client.MatchingLabels{"a": "no value!"},
		"FieldSelector": client.MatchingFields{"metadata.name": "x", "": "y"},
		"Namespace":     client.InNamespace("../secrets"),
	} {
		_, err := d.cc.Declare(t.Context(), d.owner("bad"),
			clustercache.Target{Cluster: key("west"), Kind: &corev1.Service{}, Options: []client.ListOption{bad}})
		te := targetErrors(t, err)["Service"]
		require.Equal(t, "Targets[0]."+field, te.Field)
	}
	require.Equal(t, before, objectRequests(t, remote))
}

func kindIsFoundLater(t *testing.T, hub, remote *testenv.Cluster) {
	d := declaring(t, nil, west(remote), hub, remote)
	gadgets := schema.GroupVersionKind{Group: "declared.example.com", Version: "v1", Kind: "Gadget"}
	d.declare(t, "o", d.target("west", clustercache.Kind(gadgets)), d.target("west", &corev1.ConfigMap{}))
	failed := targetErrors(t, d.waitForSync(t, "o", time.Minute))
	require.Len(t, failed, 1)
	require.True(t, meta.IsNoMatchError(failed["Gadget"]))
	require.ErrorContains(t, failed["Gadget"], "declared.example.com/v1 Gadget")

	require.NoError(t, remote.InstallCRDs(t.Context(), testenv.SimpleCRD(gadgets.Group, gadgets.Kind)))
	one := &unstructured.Unstructured{}
	one.SetGroupVersionKind(gadgets)
	one.SetNamespace(d.namespace)
	one.SetName("one")
	create(t, remote, one)
	eventually(t, "it is found", func() bool { return d.waitForSync(t, "o", time.Second) == nil })
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(gadgets)
	// The informer may have listed after the definition was created but before
	// the object was.
	eventually(t, "its object arrives", func() bool {
		return d.cc.Cluster(key("west")).Reader().Get(t.Context(), client.ObjectKeyFromObject(one),
			got, clustercache.CacheOnly) == nil
	})
}
