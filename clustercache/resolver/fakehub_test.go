// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

var errHubDown = errors.New("connection refused")

// fakeHub counts requests, and can be down, lose its history, or go back in it.
// Unlike the fake client it selects by field, and its lists have resource
// versions.
type fakeHub struct {
	client.WithWatch
	requests atomic.Int64
	down     atomic.Bool
	page     atomic.Bool  // a gateway without routes answers
	mute     atomic.Bool  // lists work, watches do not
	version  atomic.Int64 // of lists
	opened   atomic.Int64 // watches so far

	mu      sync.Mutex // protects the fields below
	streams map[*hubStream]struct{}
	expired bool
	held    chan struct{} // lists by field wait for it, even if their context has ended
	asked   []string      // selections of lists and watches
	from    string        // version that the last watch began with
}

func newFakeHub(objects ...client.Object) *fakeHub {
	h := &fakeHub{streams: map[*hubStream]struct{}{}}
	h.version.Store(1000)
	all := fake.NewClientBuilder().WithObjects(objects...).WithIndex(&corev1.Secret{}, "metadata.name", byObjectName).
		WithIndex(&corev1.ConfigMap{}, "metadata.name", byObjectName).
		WithIndex(&corev1.Secret{}, "type", func(o client.Object) []string { return []string{string(o.(*corev1.Secret).Type)} }).Build()
	h.WithWatch = interceptor.NewClient(all, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := h.ask("get", nil); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := h.ask("list", opts); err != nil {
				return err
			}
			h.wait(opts)
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			list.SetResourceVersion(fmt.Sprint(h.version.Load()))
			return nil
		},
		Watch: h.watch,
	})
	return h
}

func byObjectName(o client.Object) []string { return []string{o.GetName()} }

func (h *fakeHub) ask(verb string, opts []client.ListOption) error {
	h.requests.Add(1)
	if h.down.Load() {
		return errHubDown
	}
	if h.page.Load() {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, verb, schema.GroupResource{}, "", "<html>", 0, true)
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	raw := options.AsListOptions()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, fmt.Sprintf("%s ns=%s labels=%s fields=%s", verb, options.Namespace, raw.LabelSelector, raw.FieldSelector))
	return nil
}

func (h *fakeHub) wait(opts []client.ListOption) {
	h.mu.Lock()
	held := h.held
	h.mu.Unlock()
	if held != nil && (&client.ListOptions{}).ApplyOptions(opts).FieldSelector != nil {
		<-held
	}
}

// hold makes lists by field wait until release.
func (h *fakeHub) hold() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := make(chan struct{})
	h.held = held
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.held == held {
			h.held = nil
		}
		close(held)
	}
}

func (h *fakeHub) selections() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.asked
	h.asked = nil
	return out
}

func (h *fakeHub) watch(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	if err := h.ask("watch", opts); err != nil || h.mute.Load() {
		return nil, cmp.Or(err, errHubDown)
	}
	h.mu.Lock()
	expired := h.expired
	h.expired = false
	h.from = (&client.ListOptions{}).ApplyOptions(opts).Raw.ResourceVersion
	h.mu.Unlock()
	out := &hubStream{hub: h, out: make(chan watch.Event), stop: make(chan struct{})}
	inner, err := c.Watch(ctx, list, opts...)
	if err != nil {
		return nil, err
	}
	h.opened.Add(1)
	h.mu.Lock()
	h.streams[out] = struct{}{}
	h.mu.Unlock()
	go out.pump(inner, expired)
	return out, nil
}

// breakStreams ends all watches, as a restarting API server does.
func (h *fakeHub) breakStreams() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		s.once.Do(func() { close(s.stop) })
	}
}

// forget makes the hub lose its history, so that the next watch cannot resume.
// A fake hub has no history to begin with: without forget, a watch does not
// deliver earlier changes.
func (h *fakeHub) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expired = true
}

// open waits until everything is idle and returns the number of watches.
func (h *fakeHub) open() int {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.streams)
}

type hubStream struct {
	hub  *fakeHub
	out  chan watch.Event
	stop chan struct{}
	once sync.Once
}

func (s *hubStream) ResultChan() <-chan watch.Event { return s.out }

func (s *hubStream) Stop() { s.once.Do(func() { close(s.stop) }) }

func (s *hubStream) pump(inner watch.Interface, expired bool) {
	defer func() {
		inner.Stop()
		close(s.out)
		s.hub.mu.Lock()
		delete(s.hub.streams, s)
		s.hub.mu.Unlock()
	}()
	if expired {
		gone := &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}
		select {
		case s.out <- watch.Event{Type: watch.Error, Object: gone}:
		case <-s.stop:
		}
		return
	}
	for {
		select {
		case event := <-inner.ResultChan():
			event.Object.(client.Object).SetResourceVersion(fmt.Sprint(s.hub.version.Add(1)))
			select {
			case s.out <- event:
			case <-s.stop:
				return
			}
		case <-s.stop:
			return
		}
	}
}

// recorder is a Notify consumer.
type recorder struct {
	mu  sync.Mutex
	got []resolver.Cluster // protected by mu
}

func (r *recorder) changed(cluster resolver.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, cluster)
}

// take waits until everything is idle and returns the reports since the last
// take.
func (r *recorder) take() []resolver.Cluster {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.got
	r.got = nil
	return out
}

// notify runs Notify until the test ends.
func notify(t *testing.T, n resolver.Notifier) *recorder {
	t.Helper()
	r, _ := notifyUntil(t, n)
	return r
}

// notifyUntil runs Notify until stop, or the test, ends.
func notifyUntil(t *testing.T, n resolver.Notifier) (r *recorder, stop func()) {
	t.Helper()
	r = &recorder{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Notify(ctx, r.changed) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return r, stop
}

func capiSecret(namespace, cluster, token string) *corev1.Secret {
	return secret(namespace, cluster+"-kubeconfig", map[string]string{"cluster.x-k8s.io/cluster-name": cluster},
		map[string]string{"value": string(tokenConfig(token))})
}

func unstructuredObject(apiVersion, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(out.Object, fields)
	out.SetAPIVersion(apiVersion)
	out.SetKind(kind)
	out.SetNamespace(namespace)
	out.SetName(name)
	return out
}

func token(t testing.TB, r resolver.Resolver, cluster resolver.Cluster) string {
	t.Helper()
	access, err := r.Resolve(t.Context(), cluster)
	require.NoError(t, err)
	return access.Config().BearerToken
}
