// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// hubNamespace is where the replicas are, with their Leases, and the
// kubeconfigs of the remote clusters.
const hubNamespace = "operators"

var (
	clusterNames = []string{"berlin", "cairo", "delhi", "lima", "osaka", "paris"}
	widgetNames  = []string{"door", "pump", "valve"}
)

// world is the hub, the remote clusters, and their widgets.
type world struct {
	*fleet.Fleet

	gate       *gate
	kubeconfig string // the path of the hub's
	changes    int64  // how often all widgets were changed
}

// furnish creates the widgets, registers the clusters in the hub, opens the gate
// to it, and writes the kubeconfig with which the replicas reach it.
func furnish(ctx context.Context, f *fleet.Fleet) (*world, error) {
	w := &world{Fleet: f}
	if err := w.each(func(c fleet.Cluster) error { return createWidgets(ctx, c) }); err != nil {
		return nil, err
	}
	for _, c := range f.Remotes {
		key := client.ObjectKey{Namespace: hubNamespace, Name: c.Name()}
		if err := fleet.Register(ctx, f.Hub.Client(), key, c.Kubeconfig()); err != nil {
			return nil, err
		}
	}
	var err error
	if w.gate, err = newGate(f.Hub.Config()); err != nil {
		return nil, err
	}
	if w.kubeconfig, err = w.WriteFile("kubeconfig", testenv.Kubeconfig(w.gate.config())); err != nil {
		return nil, errors.Join(err, w.gate.close())
	}
	return w, nil
}

func createWidgets(ctx context.Context, c fleet.Cluster) error {
	if err := c.InstallCRDs(ctx, testenv.SimpleCRD(widgetKind.Group, widgetKind.Kind)); err != nil {
		return err
	}
	var widgets []client.Object
	for _, name := range widgetNames {
		widgets = append(widgets, newWidget(name))
	}
	return fleet.Create(ctx, c.Client(), widgetNamespace, widgets...)
}

// each calls f for all remote clusters at once.
func (w *world) each(f func(fleet.Cluster) error) error {
	errs := make([]error, len(w.Remotes))
	var wg sync.WaitGroup
	for i, c := range w.Remotes {
		wg.Go(func() {
			if err := f(c); err != nil {
				errs[i] = fmt.Errorf("cluster %s: %w", c.Name(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// widgets returns all widgets.
func (w *world) widgets() []widget {
	var all []widget
	for _, c := range w.Remotes {
		for _, name := range widgetNames {
			all = append(all, widget{c.Name(), name})
		}
	}
	return all
}

// change changes all widgets, so that each has a new generation.
func (w *world) change(ctx context.Context) error {
	w.changes++
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"size":%d}}`, w.changes))
	return w.each(func(c fleet.Cluster) error {
		for _, name := range widgetNames {
			if err := c.Client().Patch(ctx, newWidget(name), patch); err != nil {
				return err
			}
		}
		return nil
	})
}

// stamped returns an error unless every generation of every widget was
// reconciled exactly once. The first is that of the creation.
func (w *world) stamped(ctx context.Context) error {
	for _, c := range w.Remotes {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(widgetKind)
		if err := c.Client().List(ctx, list, client.InNamespace(widgetNamespace)); err != nil {
			return err
		}
		for _, o := range list.Items {
			s, err := stampOf(&o)
			if err != nil {
				return err
			}
			if generation := o.GetGeneration(); s.ObservedGeneration != generation || s.Times != w.changes+1 {
				return fmt.Errorf("widget %s of %s has generation %d, and its stamp is %+v, after %d changes",
					o.GetName(), c.Name(), generation, s, w.changes)
			}
		}
	}
	return nil
}

// cached returns an error unless caches have the newest generation of every
// widget.
func (w *world) cached(reads map[widget]int64) error {
	for _, x := range w.widgets() {
		if reads[x] != w.changes+1 {
			return fmt.Errorf("the caches have generation %d of widget %s of %s", reads[x], x.name, x.cluster)
		}
	}
	return nil
}

// written returns what the replicas have written so far, by the audit logs.
func (w *world) written() ([]write, error) {
	var all []write
	for _, c := range w.Remotes {
		some, err := writes(c)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// slots returns the clusters by their slots, which each replica computes by
// itself.
func (w *world) slots() (map[int]string, error) {
	s, err := sharding.New(w.Hub.Config(), identity{"any", hubNamespace}.shardingOptions(logr.Discard()))
	if err != nil {
		return nil, err
	}
	slots := map[int]string{}
	for _, c := range w.Remotes {
		slots[s.Slot(client.ObjectKey{Namespace: hubNamespace, Name: c.Name()})] = c.Name()
	}
	if len(slots) != len(w.Remotes) {
		return nil, errors.New("two of the clusters have the same slot")
	}
	return slots, nil
}
