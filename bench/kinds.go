// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/bench/internal/fleetserver"
	"github.com/fleetcache/fleetcache/bench/internal/objects"
	"github.com/fleetcache/fleetcache/bench/internal/subjects"
	"github.com/fleetcache/fleetcache/bench/measure"
)

// dataset is the objects that a measurement of kinds finds in the cluster.
type dataset struct {
	name     string
	replicas int // Pods that share labels and an owner
	// kinds are those of the objects. Of a kind that occurs twice there are
	// twice as many.
	kinds []objects.Kind
	most  *bound // for the bytes per object
	// sync bounds the processor time of the sync, as a multiple of that of
	// controller-runtime's typed cache.
	sync *bound
}

var datasets = []dataset{
	{"Pods, own labels", 1, []objects.Kind{objects.Pods}, atMost(600), atMost(0.7)},
	{"Pods, five share labels", 5, []objects.Kind{objects.Pods}, atMost(450), atMost(0.7)},
	{"Deployments", 1, []objects.Kind{objects.Deployments}, nil, atMost(1)},
	{"ConfigMaps", 1, []objects.Kind{objects.ConfigMaps}, nil, atMost(0.9)},
	{"Secrets of 3 KiB", 1, []objects.Kind{objects.Secrets}, nil, atMost(1)},
	{"TLS Secrets", 1, []objects.Kind{objects.TLSSecrets}, atMost(3300), atMost(1)},
	{"a CRD's kind", 1, []objects.Kind{objects.Widgets}, nil, atMost(1)},
	{"mixed", 1, []objects.Kind{
		objects.Pods, objects.Pods, objects.Deployments, objects.ConfigMaps, objects.Secrets,
	}, atMost(1050), atMost(0.7)},
}

// datasets returns what is measured of the datasets.
func (p plan) datasets() []dataset {
	if p.light {
		return datasets[len(datasets)-1:]
	}
	return datasets
}

// first is a kind that the cluster has no object of.
var first = measure.Kind{
	Group:    "policy",
	Version:  "v1",
	Kind:     "PodDisruptionBudget",
	Resource: "poddisruptionbudgets",
}

// kinds measures each dataset with each subject. The objects of one dataset are
// deleted before those of the next are written.
func (s *site) kinds(ctx context.Context, on measure.Cluster, r *report) error {
	config := subjects.ConfigOf(on)
	if err := s.prepare(ctx, config); err != nil {
		return err
	}
	for _, d := range s.plan.datasets() {
		if err := d.write(ctx, config, 0, s.plan.kindObjects); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if err := s.plan.measureKinds(ctx, on, d, s.plan.kindObjects, r); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if err := d.remove(ctx, config); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}

	return nil
}

// prepare removes what other steps have left, and defines the custom kind.
func (s *site) prepare(ctx context.Context, config *rest.Config) error {
	s.loaded = false
	if err := (dataset{kinds: objects.Mix}).remove(ctx, config); err != nil {
		return err
	}
	if err := makeTeams(ctx, config); err != nil {
		return err
	}
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	extensions := schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
	crds := extensions.WithResource("customresourcedefinitions")
	_, err = c.Resource(crds).Create(ctx, objects.NewWidgetDefinition(), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}

	return eventually(ctx, func() error {
		_, err := c.Resource(objects.Widgets.GVR()).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

// write writes n objects of each kind as their controllers do, but for the first
// ones, which are there already.
func (d dataset) write(ctx context.Context, config *rest.Config, first, n int) error {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	generator := objects.Generator{Replicas: d.replicas}
	next := map[string]int{}
	for _, k := range d.kinds {
		for range n - first {
			i := first + next[k.Resource]
			next[k.Resource]++
			g.Go(func() error { return writeObject(ctx, c, k, k.New(generator, i)) })
		}
	}

	return g.Wait()
}

// counts returns the kinds with the number of objects of each.
func (d dataset) counts(n int) (kinds []measure.Kind, counts []int) {
	for _, k := range d.kinds {
		i := slices.Index(kinds, fleetserver.KindOf(k))
		if i < 0 {
			i, kinds, counts = len(kinds), append(kinds, fleetserver.KindOf(k)), append(counts, 0)
		}
		counts[i] += n
	}
	return kinds, counts
}

func writeObject(ctx context.Context, c dynamic.Interface, k objects.Kind, o client.Object) error {
	content, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	in := c.Resource(k.GVR()).Namespace(u.GetNamespace())
	if _, err := in.Create(ctx, u, metav1.CreateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		return fmt.Errorf("create %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	status, has := content["status"]
	if !has || k.GVK.Group == objects.WidgetGroup {
		return nil // the custom kind has no subresource
	}
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	by := metav1.PatchOptions{FieldManager: "kubelet"}
	_, err = in.Patch(ctx, u.GetName(), types.MergePatchType, text, by, "status")

	return err
}

// removedAtOnce is how many objects one request deletes: the server gives up one
// for all objects of a large dataset after a minute.
const removedAtOnce = 500

// remove deletes all objects of the kinds.
func (d dataset) remove(ctx context.Context, config *rest.Config) error {
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	for _, k := range d.kinds {
		for i := range objects.Teams {
			in := c.Resource(k.GVR()).Namespace(objects.NamespaceOf(i))
			if err := eventually(ctx, func() error {
				err := in.DeleteCollection(ctx, now, metav1.ListOptions{Limit: removedAtOnce})
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
				left, err := in.List(ctx, metav1.ListOptions{Limit: 1})
				if err == nil && len(left.Items) > 0 {
					err = fmt.Errorf("%s is still there", left.Items[0].GetName())
				}
				return err
			}); err != nil {
				return err
			}
		}
	}

	return nil
}

func (p plan) measureKinds(ctx context.Context, on measure.Cluster, d dataset, n int, r *report) error {
	kinds, counts := d.counts(n)
	taken, err := p.inTurns(ctx, func(s string, _ int) (measure.Figures, error) {
		return watching(ctx, measure.Task{
			Work:     measure.WorkKind,
			Subject:  s,
			Clusters: []measure.Cluster{on},
			First:    first,
			Kinds:    kinds,
			Counts:   counts,
		})
	}, func(s, why string) { r.note(d.name+": live heap per object", s, why) })
	if err != nil {
		return err
	}
	d.report(r, p.fleetSubjects(), taken, n)

	return nil
}

// boundedObjects is the number of objects from which on the bounds hold: what
// an informer needs itself weighs little by then.
const boundedObjects = 2000

func (d dataset) report(r *report, names []string, taken turns, n int) {
	bounded := func(s string, b *bound) *bound {
		if s != subjects.Fleetcache || n < boundedObjects {
			return nil
		}
		return b
	}
	for _, x := range []struct {
		name, unit, figure string
		times              float64
		bound              *bound
	}{
		{"live heap per object", "B", "heap", 1, d.most},
		{"sync: processor time per object", "µs", "cpu", 1e6, nil},
		{"sync: peak of resident memory per object", "B", "peak", 1, nil},
		{"sync: allocations per object", "allocations", "allocations", 1, nil},
		{"sync: allocated per object", "B", "allocated", 1, nil},
	} {
		for _, s := range names {
			if v, ok := taken.median(s, x.figure); ok {
				r.add(d.name+": "+x.name, s, v*x.times, x.unit, bounded(s, x.bound))
			}
		}
	}

	if ratio, ok := taken.ratio(subjects.Fleetcache, subjects.Typed, "cpu"); ok {
		r.add(d.name+": sync: processor time, ours / typed", subjects.Fleetcache, ratio, "times",
			bounded(subjects.Fleetcache, d.sync))
	}
}

// objectGrowth measures informers of more and more objects.
func (s *site) objectGrowth(ctx context.Context, on measure.Cluster, r *report) error {
	config := subjects.ConfigOf(on)
	if err := s.prepare(ctx, config); err != nil {
		return err
	}
	d := dataset{name: "", replicas: 1, kinds: []objects.Kind{objects.Pods}}
	names := []string{subjects.Fleetcache, subjects.Typed, subjects.Unstructured}
	count, heap, cpu := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	written := 0
	for _, n := range s.plan.objectGrowth {
		if err := d.write(ctx, config, written, n); err != nil {
			return err
		}
		written = n
		for _, name := range names {
			f, err := watching(ctx, measure.Task{
				Work:     measure.WorkKind,
				Subject:  name,
				Clusters: []measure.Cluster{on},
				First:    first,
				Kinds:    []measure.Kind{fleetserver.KindOf(objects.Pods)},
				Counts:   []int{n},
			})
			if err != nil {
				return err
			}
			r.add(fmt.Sprintf("%d Pods: live heap per object", n), name, f["heap"], "B", nil)
			r.add(fmt.Sprintf("%d Pods: sync: processor time per object", n), name, f["cpu"]*1e6, "µs", nil)
			total := float64(n)
			count[name] = append(count[name], total)
			heap[name], cpu[name] = append(heap[name], f["heap"]*total), append(cpu[name], f["cpu"]*total)
		}
	}
	if err := d.remove(ctx, config); err != nil {
		return err
	}

	for _, name := range names {
		r.add("growth: live heap per Pod", name, fit(count[name], heap[name]).slope, "B", nil)
		r.add("growth: sync: processor time per Pod", name, fit(count[name], cpu[name]).slope*1e6, "µs", nil)
	}

	return nil
}
