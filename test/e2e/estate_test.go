// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
)

// follower follows one selection of a cluster with a watch of its own, and
// accumulates the events.
type follower struct {
	selection

	watch *clustercache.Watch

	// mu protects the fields below.
	mu       sync.Mutex
	known    state
	deleted  map[string]int
	problems []string
}

// Handle implements informerpool.Handler. An added object must be new, and an
// updated one must exist. A delete may concern an object that only a read has
// shown; deletes of objects that still exist are found by the comparison at the
// end.
func (f *follower) Handle(e informerpool.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	where := place(e.Object())
	if _, there := f.known[where]; there == (e.Type == informerpool.Added) &&
		(there || e.Type != informerpool.Deleted) {
		f.problems = append(f.problems, fmt.Sprintf("%s of %s %s, which was there: %t", e.Type, f.kind, where, there))
	}
	if e.Type == informerpool.Deleted {
		delete(f.known, where)
		f.deleted[where]++
		return
	}
	u := &unstructured.Unstructured{}
	if err := e.New.Into(u); err != nil {
		f.problems = append(f.problems, fmt.Sprintf("decode %s: %v", where, err))
	}
	f.known[where] = digest(u)
}

func (f *follower) told() (known state, deleted map[string]int, problems []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.known), maps.Clone(f.deleted), append([]string(nil), f.problems...)
}

// estate is everything that is watched in one cluster, with the remote as the
// oracle.
type estate struct {
	remote

	s         *subject
	key       client.ObjectKey
	followers []*follower
}

// follow watches all selections of a cluster and waits until the watches have
// synced.
func follow(t *testing.T, s *subject, key client.ObjectKey, r remote) *estate {
	t.Helper()
	e := &estate{remote: r, s: s, key: key}
	for _, one := range selections() {
		f := &follower{selection: one, known: state{}, deleted: map[string]int{}}
		var err error
		f.watch, err = s.Cluster(key).Watch(t.Context(), clustercache.Kind(one.gvk()), one.options(t)...)
		require.NoError(t, err)
		_, err = f.watch.AddEventHandler(f)
		require.NoError(t, err)
		e.followers = append(e.followers, f)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, f := range e.followers {
		require.NoError(t, f.watch.WaitForSync(ctx))
	}
	return e
}

// difference describes how a selection's cache and events differ from a quorum
// list. It is empty if they do not.
func (e *estate) difference(f *follower) string {
	want, err := e.quorum(e.s.t.Context(), f.selection)
	if err != nil {
		return "quorum list: " + err.Error()
	}
	list := f.list()
	err = e.s.Cluster(e.key).Reader().List(e.s.t.Context(), list, append(f.options(e.s.t), clustercache.CacheOnly)...)
	if err != nil {
		return "cache: " + err.Error()
	}
	if d := differ(want, digests(list.Items)); d != "" {
		return "cache: " + d
	}
	known, _, _ := f.told()
	if d := differ(want, known); d != "" {
		return "events: " + d
	}
	return ""
}

// equals requires that within the given time every selection's cache and events
// equal a quorum list, and that the events were consistent. It returns how long
// that took.
func (e *estate) equals(within time.Duration) time.Duration {
	e.s.t.Helper()
	began := time.Now()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for _, f := range e.followers {
		for last := e.difference(f); last != ""; last = e.difference(f) {
			if time.Since(began) > within {
				require.FailNow(e.s.t, "still different", "%s of %s after %s: %s; status %+v", f.selection, e.key,
					within, last, f.watch.Status())
			}
			<-look.C
		}
	}
	took := time.Since(began).Round(time.Millisecond)
	for _, f := range e.followers {
		_, _, problems := f.told()
		require.Empty(e.s.t, problems, "%s of %s", f.selection, e.key)
	}
	return took
}

// object returns an object of the estate with the given name and value.
func (r remote) object(s selection, name, value, app string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(s.gvk())
	u.SetNamespace(s.namespace)
	if s.kind == "ConfigMap" || (s.kind == "Part" && s.namespace == "") {
		u.SetNamespace("other")
	}
	if s.kind == "ClusterRole" || s.kind == "Role" {
		name = "odd: " + name + "\n*ü" // allowed in a segment of a path
	}
	u.SetName(name)
	u.SetLabels(map[string]string{"app": app})
	u.SetAnnotations(map[string]string{"from": r.from, "value": value})
	return u
}

// put creates or updates an object of a selection.
func (r remote) put(ctx context.Context, s selection, name, value, app string) error {
	u := r.object(s, name, value, app)
	of := r.Resource(s.gvr()).Namespace(u.GetNamespace())
	_, err := of.Create(ctx, u, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	have, err := of.Get(ctx, u.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	u.SetResourceVersion(have.GetResourceVersion())
	if s.kind == "Secret" {
		u.Object["type"] = have.Object["type"]
	}
	_, err = of.Update(ctx, u, metav1.UpdateOptions{})
	return err
}

func (r remote) remove(ctx context.Context, s selection, name string) error {
	u := r.object(s, name, "", "")
	return r.Resource(s.gvr()).Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
}

// settle creates the objects that a backup will contain.
func (r remote) settle(t *testing.T) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName("other")
	_, err := r.Resource(selection{version: "v1", resource: "namespaces"}.gvr()).Create(t.Context(),
		u, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	for _, s := range selections() {
		for i, app := range []string{"a", "b", "c", "a", "a"} {
			require.NoError(t, r.put(t.Context(), s, fmt.Sprint("n-", i), "early", app))
		}
	}
}

// diverge makes changes of each kind that a restoration undoes: it updates an
// object, moves objects into and out of a selection, deletes one, recreates
// one, and creates one.
func (r remote) diverge(t *testing.T) {
	t.Helper()
	for _, s := range selections() {
		require.NoError(t, r.put(t.Context(), s, "n-0", "late", "a"))
		require.NoError(t, r.put(t.Context(), s, "n-2", "late", "a"))
		require.NoError(t, r.put(t.Context(), s, "n-3", "late", "c"))
		require.NoError(t, client.IgnoreNotFound(r.remove(t.Context(), s, "n-4")))
		require.NoError(t, client.IgnoreNotFound(r.remove(t.Context(), s, "n-1")))
		require.NoError(t, r.put(t.Context(), s, "n-1", "anew", "a"))
		require.NoError(t, r.put(t.Context(), s, "late", "late", "a"))
	}
}

// undone requires that deletes were delivered for the objects that a
// restoration removed.
func (e *estate) undone(t *testing.T) {
	t.Helper()
	for _, f := range e.followers {
		_, deleted, _ := f.told()
		if f.fields != "metadata.name=n-1" {
			require.Positive(t, deleted[place(e.object(f.selection, "late", "", ""))], f.selection)
		}
	}
}

// write changes a random object of the estate and reports whether that
// succeeded.
func (r remote) write(ctx context.Context, random *rand.Rand) bool {
	all := selections()
	s, name := all[random.IntN(len(all))], fmt.Sprint("n-", random.IntN(8))
	if random.IntN(4) == 0 {
		return r.remove(ctx, s, name) == nil
	}
	return r.put(ctx, s, name, fmt.Sprint(random.Int()), string(rune('a'+random.IntN(3)))) == nil
}
