// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetcache/fleetcache/bench/measure"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// look is how often it is looked whether a cluster was connected, again or for
// the first time. As a controller of Cluster API does, all watches are added
// again by then.
const look = 100 * time.Millisecond

// clusterAPI is Cluster API's clustercache. Its hub is in memory.
type clusterAPI struct {
	keys   []client.ObjectKey
	cache  capi.ClusterCache
	cancel context.CancelFunc
	ended  errgroup.Group

	mu    sync.Mutex // protects kinds
	kinds []measure.Kind
}

func openClusterAPI(ctx context.Context, clusters []measure.Cluster) (measure.Subject, error) {
	hub, err := newHub(clusters)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://hub.invalid", Transport: hub.Transport()}, ctrl.Options{
		Scheme:  scheme,
		Logger:  logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &clusterAPI{cancel: cancel}
	secrets := kubeconfigs{}
	for _, cluster := range clusters {
		key := keyOf(cluster)
		c.keys = append(c.keys, key)
		secrets[key.Name+"-kubeconfig"] = testenv.Kubeconfig(ConfigOf(cluster))
	}
	c.cache, err = capi.SetupWithManager(ctx, mgr, capi.Options{
		SecretClient: secrets,
		// Requests are not limited, as those of the other subjects.
		Client: capi.ClientOptions{UserAgent: "bench", QPS: 1000, Burst: 1000},
	}, controller.Options{SkipNameValidation: new(true), MaxConcurrentReconciles: connecting})
	if err != nil {
		cancel()
		return nil, err
	}
	c.ended.Go(func() error { return mgr.Start(ctx) })
	for i := range c.keys {
		c.ended.Go(func() error { c.keep(ctx, i); return nil })
	}

	return c, nil
}

// connecting is how many clusters connect at once, as in Cluster API's own
// controllers by default.
const connecting = 100

// newHub returns a hub that has the Cluster objects.
func newHub(clusters []measure.Cluster) (*fakeapi.Server, error) {
	hub := fakeapi.New(fakeapi.Options{Kinds: []fakeapi.Kind{{
		Group:    clusterv1.GroupVersion.Group,
		Kind:     "Cluster",
		Versions: []string{clusterv1.GroupVersion.Version},
		Resource: "clusters",
		Singular: "cluster",
		Status:   true,
	}}})
	for _, c := range clusters {
		u := &unstructured.Unstructured{Object: map[string]any{
			"status": map[string]any{"initialization": map[string]any{"infrastructureProvisioned": true}},
		}}
		u.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
		u.SetNamespace(keyOf(c).Namespace)
		u.SetName(keyOf(c).Name)
		if err := hub.Seed(u); err != nil {
			return nil, err
		}
	}

	return hub, nil
}

// kubeconfigs are Secrets by name; it is the reader from which the ClusterCache
// reads them.
type kubeconfigs map[string][]byte

// Get implements client.Reader.
func (k kubeconfigs) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	secret, ok := obj.(*corev1.Secret)
	text := k[key.Name]
	if !ok || text == nil {
		return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	secret.Namespace, secret.Name = key.Namespace, key.Name
	secret.Data = map[string][]byte{"value": text}

	return nil
}

// List implements client.Reader.
func (kubeconfigs) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("kubeconfigs cannot be listed")
}

// keep adds the watches whenever a cluster was connected.
func (c *clusterAPI) keep(ctx context.Context, cluster int) {
	var last client.Reader
	added := 0
	for ctx.Err() == nil {
		c.mu.Lock()
		kinds := c.kinds
		c.mu.Unlock()
		if r, err := c.cache.GetReader(ctx, c.keys[cluster]); err == nil {
			if r != last {
				last, added = r, 0
			}
			for ; added < len(kinds) && watch(ctx, r, kinds[added]) == nil; added++ {
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(look):
		}
	}
}

// watch starts the informer of a kind by a read, and waits for its sync.
func watch(ctx context.Context, r client.Reader, k measure.Kind) error {
	_, err := list(ctx, r, k, client.InNamespace("no-such-namespace"))
	return err
}

func list(ctx context.Context, r client.Reader, k measure.Kind, opts ...client.ListOption) (int, error) {
	items, err := form(typedForm).newList(k)
	if err != nil {
		return 0, err
	}
	if err := r.List(ctx, items, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return 0, err
	}
	return meta.LenList(items), nil
}

// Watch implements measure.Subject.
func (c *clusterAPI) Watch(ctx context.Context, kinds []measure.Kind) error {
	c.mu.Lock()
	c.kinds = append(slices.Clip(c.kinds), kinds...)
	c.mu.Unlock()

	for _, key := range c.keys {
		for _, k := range kinds {
			if err := c.await(ctx, key, k); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}

	return nil
}

// await waits until the informer of a kind has synced.
func (c *clusterAPI) await(ctx context.Context, key client.ObjectKey, k measure.Kind) error {
	for {
		r, err := c.cache.GetReader(ctx, key)
		if err == nil {
			err = watch(ctx, r, k)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(look):
		}
	}
}

// Count implements measure.Subject.
func (c *clusterAPI) Count(ctx context.Context, k measure.Kind) (int, error) {
	total := 0
	for _, key := range c.keys {
		r, err := c.cache.GetReader(ctx, key)
		if err != nil {
			return 0, err
		}
		n, err := list(ctx, r, k)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// ResourceVersion implements measure.Subject.
func (c *clusterAPI) ResourceVersion(ctx context.Context, m measure.Mark) (string, error) {
	r, err := c.cache.GetReader(ctx, c.keys[m.Cluster])
	if err != nil {
		return "", err
	}
	o, err := typedForm(m.Kind)
	if err != nil {
		return "", err
	}
	err = r.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Name}, o)

	return o.GetResourceVersion(), err
}

// Stop implements measure.Subject.
func (c *clusterAPI) Stop() error {
	c.cancel()
	err := c.ended.Wait()
	if s, ok := c.cache.(interface{ Shutdown() }); ok {
		s.Shutdown() // the informers' contexts are not the manager's
	}
	return err
}
