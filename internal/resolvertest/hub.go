// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolvertest

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

// ErrHubDown is the error of a hub that is down.
var ErrHubDown = errors.New("connection refused")

// Hub counts requests, and can be down, lose its history, or go back in it.
// Unlike the fake client it selects by field, and its lists have resource
// versions.
type Hub struct {
	client.WithWatch
	Requests atomic.Int64
	Down     atomic.Bool
	Page     atomic.Bool  // a gateway without routes answers
	Mute     atomic.Bool  // lists work, watches do not
	Version  atomic.Int64 // of lists
	Opened   atomic.Int64 // watches so far

	Mu      sync.Mutex // protects the fields below
	streams map[*hubStream]struct{}
	expired bool
	Held    chan struct{} // lists by field wait for it, even if their context has ended
	asked   []string      // selections of lists and watches
	From    string        // version that the last watch began with
}

// NewHub returns a hub with objects.
func NewHub(objects ...client.Object) *Hub {
	h := &Hub{streams: map[*hubStream]struct{}{}}
	h.Version.Store(1000)
	all := fake.NewClientBuilder().WithObjects(objects...).WithIndex(&corev1.Secret{}, "metadata.name", byObjectName).
		WithIndex(&corev1.ConfigMap{}, "metadata.name", byObjectName).
		WithIndex(&corev1.Secret{}, "type", func(o client.Object) []string {
			return []string{string(o.(*corev1.Secret).Type)}
		}).Build()
	h.WithWatch = interceptor.NewClient(all, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
			opts ...client.GetOption) error {
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
			list.SetResourceVersion(fmt.Sprint(h.Version.Load()))
			return nil
		},
		Watch: h.watch,
	})
	return h
}

func byObjectName(o client.Object) []string { return []string{o.GetName()} }

func (h *Hub) ask(verb string, opts []client.ListOption) error {
	h.Requests.Add(1)
	if h.Down.Load() {
		return ErrHubDown
	}
	if h.Page.Load() {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, verb, schema.GroupResource{},
			"", "<html>", 0, true)
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	raw := options.AsListOptions()
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.asked = append(h.asked, fmt.Sprintf("%s ns=%s labels=%s fields=%s", verb, options.Namespace, raw.LabelSelector,
		raw.FieldSelector))
	return nil
}

func (h *Hub) wait(opts []client.ListOption) {
	h.Mu.Lock()
	held := h.Held
	h.Mu.Unlock()
	if held != nil && (&client.ListOptions{}).ApplyOptions(opts).FieldSelector != nil {
		<-held
	}
}

// Hold makes lists by field wait until release.
func (h *Hub) Hold() (release func()) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	held := make(chan struct{})
	h.Held = held
	return func() {
		h.Mu.Lock()
		defer h.Mu.Unlock()
		if h.Held == held {
			h.Held = nil
		}
		close(held)
	}
}

// Selections returns the selections of the lists and watches since the last
// call.
func (h *Hub) Selections() []string {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	out := h.asked
	h.asked = nil
	return out
}

func (h *Hub) watch(ctx context.Context, c client.WithWatch, list client.ObjectList,
	opts ...client.ListOption) (watch.Interface, error) {
	if err := h.ask("watch", opts); err != nil || h.Mute.Load() {
		return nil, cmp.Or(err, ErrHubDown)
	}
	h.Mu.Lock()
	expired := h.expired
	h.expired = false
	h.From = (&client.ListOptions{}).ApplyOptions(opts).Raw.ResourceVersion
	h.Mu.Unlock()
	out := &hubStream{hub: h, out: make(chan watch.Event), stop: make(chan struct{})}
	inner, err := c.Watch(ctx, list, opts...)
	if err != nil {
		return nil, err
	}
	h.Opened.Add(1)
	h.Mu.Lock()
	h.streams[out] = struct{}{}
	h.Mu.Unlock()
	go out.pump(inner, expired)
	return out, nil
}

// BreakStreams ends all watches, as a restarting API server does.
func (h *Hub) BreakStreams() {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	for s := range h.streams {
		s.once.Do(func() { close(s.stop) })
	}
}

// Forget makes the hub lose its history, so that the next watch cannot resume.
// A fake hub has no history to begin with: without forget, a watch does not
// deliver earlier changes.
func (h *Hub) Forget() {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.expired = true
}

// Open waits until everything is idle and returns the number of watches.
func (h *Hub) Open() int {
	synctest.Wait()
	h.Mu.Lock()
	defer h.Mu.Unlock()
	return len(h.streams)
}

type hubStream struct {
	hub  *Hub
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
		s.hub.Mu.Lock()
		delete(s.hub.streams, s)
		s.hub.Mu.Unlock()
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
			event.Object.(client.Object).SetResourceVersion(fmt.Sprint(s.hub.Version.Add(1)))
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

// Recorder is a Notify consumer.
type Recorder struct {
	mu  sync.Mutex
	got []resolver.Cluster // protected by mu
}

func (r *Recorder) record(cluster resolver.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, cluster)
}

// Take waits until everything is idle and returns the reports since the last
// take.
func (r *Recorder) Take() []resolver.Cluster {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.got
	r.got = nil
	return out
}

// Notify runs Notify until the test ends.
func Notify(t *testing.T, n resolver.Notifier) *Recorder {
	t.Helper()
	r, _ := NotifyUntil(t, n)
	return r
}

// NotifyUntil runs Notify until stop, or the test, ends.
func NotifyUntil(t *testing.T, n resolver.Notifier) (r *Recorder, stop func()) {
	t.Helper()
	r = &Recorder{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Notify(ctx, r.record) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return r, stop
}

// ClusterAPISecret returns a kubeconfig Secret as Cluster API writes it.
func ClusterAPISecret(namespace, cluster, token string) *corev1.Secret {
	return Secret(namespace, cluster+"-kubeconfig", map[string]string{"cluster.x-k8s.io/cluster-name": cluster},
		TokenData("value", token))
}

// UnstructuredObject returns an object of any kind.
func UnstructuredObject(apiVersion, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(out.Object, fields)
	out.SetAPIVersion(apiVersion)
	out.SetKind(kind)
	out.SetNamespace(namespace)
	out.SetName(name)
	return out
}

// Token returns the token of the access to a cluster.
func Token(t testing.TB, r resolver.Resolver, cluster resolver.Cluster) string {
	t.Helper()
	access, err := r.Resolve(t.Context(), cluster)
	require.NoError(t, err)
	return access.Config().BearerToken
}
