// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/controller"
)

// painter makes every ConfigMap of a cluster blue.
type painter struct{ clusters *clustercache.ClusterCache }

func (p painter) Reconcile(ctx context.Context, r controller.Request) (reconcile.Result, error) {
	c, err := p.clusters.Cluster(r.Cluster).Client()
	if err != nil {
		return reconcile.Result{}, err
	}
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, r.ObjectKey, cm); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	cm.Data = map[string]string{"color": "blue"}
	return reconcile.Result{}, c.Update(ctx, cm)
}

// A test of a reconciler. In a test, t is its *testing.T.
func Example() {
	t := &exampleT{}
	defer t.end()

	fence := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fence"}}
	key := client.ObjectKeyFromObject(fence)
	fleet := clustercachetest.New(t, clustercachetest.Options{})
	east := fleet.Add("fleet/east", fence)
	reconciler := painter{clusters: fleet.ClusterCache()}
	request := controller.Request{Cluster: east.Key(), ObjectKey: key}
	fleet.WaitSynced()

	_, err := reconciler.Reconcile(t.Context(), request)
	fmt.Println("error:", err)
	err = east.Client().Get(t.Context(), key, fence)
	fmt.Println("color:", fence.Data["color"], err)

	east.Disconnect()
	fleet.WaitSynced()
	_, err = reconciler.Reconcile(t.Context(), request)
	fmt.Println("disconnected:", err != nil)

	// Output:
	// error: <nil>
	// color: blue <nil>
	// disconnected: true
}

// hire makes sure that a job has a worker: it creates one unless it sees one.
func hire(ctx context.Context, c client.Client, job, name string) error {
	workers := &corev1.ConfigMapList{}
	if err := c.List(ctx, workers, client.InNamespace("default"), client.MatchingLabels{"job": job}); err != nil {
		return err
	}
	if len(workers.Items) > 0 {
		return nil
	}
	worker := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		Labels: map[string]string{"job": job}}}
	if name == "" {
		worker.GenerateName = job + "-"
	}
	if err := c.Create(ctx, worker); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// A reconciler that takes an object's absence from its cache for its absence
// from the cluster hires twice. With a name derived from the job it cannot.
func ExampleCluster_Stale() {
	t := &exampleT{}
	defer t.end()
	for _, name := range []string{"", "the-worker"} {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("east")
		cc := fleet.ClusterCache()
		watch, err := cc.Cluster(east.Key()).Watch(t.Context(), &corev1.ConfigMap{})
		if err != nil {
			t.Fatalf("%v", err)
		}
		fleet.WaitSynced()
		c, err := cc.Cluster(east.Key()).Client()
		if err != nil {
			t.Fatalf("%v", err)
		}

		fresh := east.Stale()
		fmt.Println(hire(t.Context(), c, "dig", name), hire(t.Context(), c, "dig", name))
		fresh()
		fleet.WaitSynced()

		workers := &corev1.ConfigMapList{}
		err = c.List(t.Context(), workers)
		fmt.Printf("name %q: %d workers %v\n", name, len(workers.Items), err)
		watch.Release()
	}
	// Output:
	// <nil> <nil>
	// name "": 2 workers <nil>
	// <nil> <nil>
	// name "the-worker": 1 workers <nil>
}

// accounts has an account for each existing ConfigMap. A careless one
// identifies ConfigMaps by name only.
type accounts struct {
	open    map[client.ObjectKey]types.UID
	careful bool
}

func (a *accounts) reconcile(ctx context.Context, c client.Reader, key client.ObjectKey) error {
	cm := &corev1.ConfigMap{}
	err := c.Get(ctx, key, cm)
	switch is, open := a.open[key]; {
	case apierrors.IsNotFound(err):
		delete(a.open, key)
		return nil
	case err == nil && (!open || (a.careful && is != cm.UID)):
		a.open[key] = cm.UID // and the previous one is closed
	}
	return err
}

// A reconciler that relies on seeing every deletion keeps the account of an
// object that no longer exists.
func ExampleCluster_Skip() {
	t := &exampleT{}
	defer t.end()
	fleet := clustercachetest.New(t, clustercachetest.Options{})
	ann := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ann"}}
	key := client.ObjectKeyFromObject(ann)
	east := fleet.Add("east", ann)
	cc := fleet.ClusterCache()
	watch, err := cc.Cluster(east.Key()).Watch(t.Context(), ann)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer watch.Release()
	for _, careful := range []bool{false, true} {
		a := &accounts{open: map[client.ObjectKey]types.UID{}, careful: careful}
		fleet.WaitSynced()
		before := a.reconcile(t.Context(), cc.Cluster(east.Key()).Reader(), key)
		east.Skip(func() {
			err = east.Client().Delete(t.Context(), ann.DeepCopy())
			east.Store(ann)
		})
		fleet.WaitSynced()
		after := a.reconcile(t.Context(), cc.Cluster(east.Key()).Reader(), key)

		is := &corev1.ConfigMap{}
		if err := east.Client().Get(t.Context(), key, is); err != nil {
			t.Fatalf("%v", err)
		}
		fmt.Printf("careful %v: right account %v (%v %v %v)\n", careful, a.open[key] == is.UID, before, err, after)
	}
	// Output:
	// careful false: right account false (<nil> <nil> <nil>)
	// careful true: right account true (<nil> <nil> <nil>)
}

// rename gives a ConfigMap another name, creating or deleting first.
func rename(ctx context.Context, c client.Client, from, to client.ObjectKey, createFirst bool) error {
	old := &corev1.ConfigMap{}
	if err := c.Get(ctx, from, old); err != nil {
		return client.IgnoreNotFound(err)
	}
	create := func() error {
		err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: to.Namespace, Name: to.Name},
			Data: old.Data})
		if apierrors.IsAlreadyExists(err) {
			return nil // by an earlier run
		}
		return err
	}
	remove := func() error { return client.IgnoreNotFound(c.Delete(ctx, old)) }
	steps := []func() error{remove, create}
	if createFirst {
		steps = []func() error{create, remove}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// A reconciler that crashes at any of its writes, and runs again, has to reach
// the same end state.
func ExampleFleet_InterruptAfter() {
	t := &exampleT{}
	defer t.end()
	from, to := client.ObjectKey{Namespace: "default", Name: "old"}, client.ObjectKey{Namespace: "default", Name: "new"}
	for _, createFirst := range []bool{false, true} {
		for n := 1; ; n++ {
			fleet := clustercachetest.New(t, clustercachetest.Options{})
			east := fleet.Add("east", &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: from.Namespace, Name: from.Name}})
			cc := fleet.ClusterCache()
			fleet.WaitSynced()
			c, err := cc.Cluster(east.Key()).Client()
			if err != nil {
				t.Fatalf("%v", err)
			}

			crash := fleet.InterruptAfter(n)
			err = rename(t.Context(), c, from, to, createFirst)
			if !crash.End() {
				break // it made fewer writes: every crash was tried
			}
			again := rename(t.Context(), c, from, to, createFirst)
			lost := east.Client().Get(t.Context(), to, &corev1.ConfigMap{})
			fmt.Printf("create first %v, crash after write %d (%v), again %v: lost %v\n",
				createFirst, n, clustercachetest.IsInterrupted(err), again, lost != nil)
		}
	}
	// Output:
	// create first false, crash after write 1 (true), again <nil>: lost true
	// create first false, crash after write 2 (true), again <nil>: lost false
	// create first true, crash after write 1 (true), again <nil>: lost false
	// create first true, crash after write 2 (true), again <nil>: lost false
}
