// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	internalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/restmap"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// newClient returns a client whose requests go through a round tripper, and a
// counter of how often discovery changed.
func newClient(t *testing.T, through http.RoundTripper) (c client.Client, rediscovered *int) {
	t.Helper()
	return newHookedClient(t, through, liveclient.Hooks{
		Failed: func(_ string, _ schema.GroupVersionKind, err error) error { return err },
		Begin:  func() func(schema.GroupVersionKind, any, bool) { return func(schema.GroupVersionKind, any, bool) {} },
		Write:  func(ctx context.Context, call func(context.Context) error) error { return call(ctx) },
	})
}

func newHookedClient(
	t *testing.T, through http.RoundTripper, hooks liveclient.Hooks,
) (c client.Client, rediscovered *int) {
	t.Helper()
	const url = "http://cluster"
	rediscovered = new(int)
	mapper := restmap.NewTable().NewMapper(through.RoundTrip, url, restmap.Options{NegativeTTL: time.Nanosecond})
	c, err := liveclient.NewFactory(liveclient.Config{
		URL:             url,
		Unary:           through,
		Stream:          through,
		Scheme:          scheme.Scheme,
		Mapper:          mapper,
		Timeout:         time.Minute,
		RefreshInterval: time.Nanosecond,
		MaxBytes:        1 << 20,
		MaxObjectBytes:  1 << 20,
		Rediscovered:    func() { *rediscovered++ },
	}).Client(hooks)
	require.NoError(t, err)
	return c, rediscovered
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// TestHazardAnswerIsAnotherObject: client-go decodes any object into the one
// that was requested.
func TestHazardAnswerIsAnotherObject(t *testing.T) {
	server := fakeapi.New(fakeapi.Options{}).Transport()
	c, _ := newClient(t, roundTripper(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.URL.Path = strings.Replace(req.URL.Path, "/configmaps/one", "/configmaps/two", 1)
		return server.RoundTrip(req)
	}))
	require.NoError(t, c.Create(t.Context(), configMap("two")))

	got := &corev1.ConfigMap{}
	require.ErrorIs(t, c.Get(t.Context(), client.ObjectKeyFromObject(configMap("one")), got), liveclient.ErrAnswer)
	require.Empty(t, got.Name)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(configMap("two")), got))
}

// TestHazardAnswerTakesAllMemory: a budget bounds what an answer takes, which
// is reported with the kind.
func TestHazardAnswerTakesAllMemory(t *testing.T) {
	var failed []string
	c, _ := newHookedClient(t, fakeapi.New(fakeapi.Options{}).Transport(), liveclient.Hooks{
		Failed: func(op string, gvk schema.GroupVersionKind, err error) error {
			failed = append(failed, op+" "+gvk.Kind)
			return err
		},
		Begin: func() func(schema.GroupVersionKind, any, bool) {
			return func(gvk schema.GroupVersionKind, _ any, _ bool) { t.Error("shown:", gvk) }
		},
		Write: func(ctx context.Context, call func(context.Context) error) error { return call(ctx) },
	})
	large := configMap("large")
	large.Data = map[string]string{"a": strings.Repeat("x", 1<<19)}
	require.ErrorIs(t, c.Create(t.Context(), large), informerpool.ErrBudget)
	require.ErrorIs(t, c.List(t.Context(), &corev1.ConfigMapList{}), informerpool.ErrBudget)
	require.Equal(t, []string{"create ConfigMap", "list ConfigMapList"}, failed)
}

// TestClientFollowsDiscovery: a kind that is defined after the first call is
// found without a new client.
func TestClientFollowsDiscovery(t *testing.T) {
	server := fakeapi.New(fakeapi.Options{})
	c, rediscovered := newClient(t, server.Transport())
	widget := &unstructured.Unstructured{}
	widget.SetAPIVersion("example.com/v1")
	widget.SetKind("Widget")
	widget.SetNamespace("default")
	widget.SetName("one")
	require.True(t, meta.IsNoMatchError(c.Create(t.Context(), widget.DeepCopy())))

	server.Register(fakeapi.Kind{
		Group:    "example.com",
		Kind:     "Widget",
		Versions: []string{"v1"},
		Resource: "widgets",
		Singular: "widget",
	})
	require.NoError(t, c.Create(t.Context(), widget))
	server.Unregister(schema.GroupKind{Group: "example.com", Kind: "Widget"})
	require.Error(t, c.Get(t.Context(), client.ObjectKeyFromObject(widget), widget))
	require.Positive(t, *rediscovered)
}

// TestHazardScopeOfAKindThatIsNotWatchedChanges: no informer notices that a
// definition was created again with another scope. Each call that fails because
// of the former scope is repeated with the current one.
func TestHazardScopeOfAKindThatIsNotWatchedChanges(t *testing.T) {
	gadget := func(namespace string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("example.com/v1")
		u.SetKind("Gadget")
		u.SetNamespace(namespace)
		u.SetName("one")
		return u
	}
	calls := map[string]func(client.Client, *unstructured.Unstructured) error{
		"create": func(c client.Client, u *unstructured.Unstructured) error { return c.Create(t.Context(), u) },
		"get": func(c client.Client, u *unstructured.Unstructured) error {
			return c.Get(t.Context(), client.ObjectKeyFromObject(u), u)
		},
		"update": func(c client.Client, u *unstructured.Unstructured) error { return c.Update(t.Context(), u) },
		"delete": func(c client.Client, u *unstructured.Unstructured) error { return c.Delete(t.Context(), u) },
	}
	for verb, call := range calls {
		for is, clusterScoped := range map[string]bool{"cluster-scoped": true, "namespaced": false} {
			t.Run(verb+" "+is, func(t *testing.T) {
				kind := fakeapi.Kind{
					Group:         "example.com",
					Kind:          "Gadget",
					Resource:      "gadgets",
					ClusterScoped: !clusterScoped,
				}
				was, now := gadget("default"), gadget("")
				if !clusterScoped {
					was, now = now, was
				}
				server := fakeapi.New(fakeapi.Options{Kinds: []fakeapi.Kind{kind}})
				c, rediscovered := newClient(t, server.Transport())
				require.NoError(t, c.Create(t.Context(), was))

				server.Unregister(schema.GroupKind{Group: "example.com", Kind: "Gadget"})
				kind.ClusterScoped = clusterScoped
				server.Register(kind)
				if verb != "create" {
					require.NoError(t, server.Seed(now))
					stored, _ := server.Objects(now.GroupVersionKind())
					now = stored[0]
				}
				require.NoError(t, call(c, now))
				require.Equal(t, 1, *rediscovered)
			})
		}
	}
}

// TestHazardListOfANamespaceShowsAll: a kind that had no namespaces is created
// again with them, which nothing notices. A list of a namespace is sent to the
// path of all.
func TestHazardListOfANamespaceShowsAll(t *testing.T) {
	gadget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	lists := map[string]func() client.ObjectList{
		"unstructured": func() client.ObjectList { return &unstructured.UnstructuredList{} },
		"metadata":     func() client.ObjectList { return &metav1.PartialObjectMetadataList{} },
	}
	for form, newList := range lists {
		t.Run(form, func(t *testing.T) {
			kind := fakeapi.Kind{Group: gadget.Group, Kind: gadget.Kind, ClusterScoped: true}
			server := fakeapi.New(fakeapi.Options{Kinds: []fakeapi.Kind{kind}})
			c, rediscovered := newClient(t, server.Transport())
			count := func(options ...client.ListOption) (int, error) {
				list := newList()
				list.GetObjectKind().SetGroupVersionKind(gadget.GroupVersion().WithKind("GadgetList"))
				err := c.List(t.Context(), list, options...)
				return meta.LenList(list), err
			}
			n, err := count(client.InNamespace("a"))
			require.NoError(t, err)
			require.Zero(t, n)

			server.Unregister(gadget.GroupKind())
			kind.ClusterScoped = false
			server.Register(kind)
			for _, namespace := range []string{"a", "b", "c"} {
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(gadget)
				u.SetNamespace(namespace)
				u.SetName("one")
				require.NoError(t, server.Seed(u))
			}
			n, err = count(client.InNamespace("b"))
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Equal(t, 1, *rediscovered)
		})
	}
}

// TestHazardDiscoveryHoldsOtherCalls: the client of controller-runtime looks up
// a kind under a lock that all calls need, and without their contexts. While the
// discovery of one kind hangs, calls about known kinds go on, and the call ends
// with its context.
func TestHazardDiscoveryHoldsOtherCalls(t *testing.T) {
	server := fakeapi.New(fakeapi.Options{}).Transport()
	asked, hangs := make(chan error, 10), atomic.Bool{}
	c, _ := newClient(t, roundTripper(func(req *http.Request) (*http.Response, error) {
		if hangs.Load() && (req.URL.Path == "/api" || req.URL.Path == "/apis") {
			asked <- nil
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		return server.RoundTrip(req)
	}))
	one := configMap("one")
	key := client.ObjectKeyFromObject(one)
	require.NoError(t, c.Create(t.Context(), one))
	hangs.Store(true)

	widget := &unstructured.Unstructured{}
	widget.SetAPIVersion("example.com/v1")
	widget.SetKind("Widget")
	widget.SetNamespace("default")
	widget.SetName("one")
	widgets := &unstructured.UnstructuredList{}
	widgets.SetAPIVersion("example.com/v1")
	widgets.SetKind("WidgetList")
	typed := &internalv1alpha1.StorageVersion{ObjectMeta: one.ObjectMeta}
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(widget.GroupVersionKind())
	for name, call := range map[string]func(ctx context.Context) error{
		"get":          func(ctx context.Context) error { return c.Get(ctx, key, widget) },
		"get typed":    func(ctx context.Context) error { return c.Get(ctx, key, typed) },
		"get metadata": func(ctx context.Context) error { return c.Get(ctx, key, metadata) },
		"list":         func(ctx context.Context) error { return c.List(ctx, widgets) },
		"create":       func(ctx context.Context) error { return c.Create(ctx, widget.DeepCopy()) },
		"update":       func(ctx context.Context) error { return c.Update(ctx, widget.DeepCopy()) },
		"delete":       func(ctx context.Context) error { return c.Delete(ctx, widget.DeepCopy()) },
		"delete all":   func(ctx context.Context) error { return c.DeleteAllOf(ctx, widget.DeepCopy()) },
		"status":       func(ctx context.Context) error { return c.Status().Update(ctx, widget.DeepCopy()) },
		"apply": func(ctx context.Context) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(widget.DeepCopy()))
		},
		"patch": func(ctx context.Context) error {
			return c.Patch(ctx, widget.DeepCopy(), client.RawPatch(types.MergePatchType, []byte("{}")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- call(ctx) }()
			require.NoError(t, within(t, asked))
			read := make(chan error, 1)
			go func() { read <- c.Get(t.Context(), key, &corev1.ConfigMap{}) }()
			require.NoError(t, within(t, read))
			cancel()
			require.ErrorIs(t, within(t, ended), context.Canceled)
			for len(asked) > 0 {
				require.NoError(t, <-asked)
			}
		})
	}
}

func within(t *testing.T, ended chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(10 * time.Second):
		require.Fail(t, "it waits for the discovery")
		return nil
	}
}

// TestCallsAboutKindsOfKubernetesNeedNoDiscovery while it fails: how they are
// served is presumed, for each call anew.
func TestCallsAboutKindsOfKubernetesNeedNoDiscovery(t *testing.T) {
	server := fakeapi.New(fakeapi.Options{}).Transport()
	c, _ := newClient(t, roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Path == "/api" || req.URL.Path == "/apis" {
			return &http.Response{
				StatusCode: http.StatusTooManyRequests,
				Header:     http.Header{"Content-Type": {"text/plain"}},
				Body:       http.NoBody,
				Request:    req,
			}, nil
		}
		return server.RoundTrip(req)
	}))
	for range 3 {
		require.NoError(t, c.Create(t.Context(), configMap("one")))
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(configMap("one")), metadata))
		require.NoError(t, c.List(t.Context(), &corev1.ConfigMapList{}))
		require.NoError(t, c.Delete(t.Context(), configMap("one")))
	}
	widgets := &unstructured.UnstructuredList{}
	widgets.SetAPIVersion("example.com/v1")
	widgets.SetKind("WidgetList")
	require.Error(t, c.List(t.Context(), widgets))
}

func TestNilObjectsAreRefused(t *testing.T) {
	c, _ := newClient(t, roundTripper(func(*http.Request) (*http.Response, error) {
		t.Error("a request was sent")
		return nil, http.ErrAbortHandler
	}))
	patch := client.RawPatch(types.MergePatchType, []byte("{}"))
	for name, obj := range map[string]client.Object{"nil": nil, "nil pointer": (*corev1.ConfigMap)(nil)} {
		for verb, err := range map[string]error{
			"create":        c.Create(t.Context(), obj),
			"update":        c.Update(t.Context(), obj),
			"patch":         c.Patch(t.Context(), obj, patch),
			"delete":        c.Delete(t.Context(), obj),
			"delete all of": c.DeleteAllOf(t.Context(), obj),
			"apply":         c.Apply(t.Context(), nil),
			"update status": c.Status().Update(t.Context(), obj),
			"patch status":  c.Status().Patch(t.Context(), obj, patch),
			"create status": c.Status().Create(t.Context(), obj, configMap("a")),
			"apply status":  c.Status().Apply(t.Context(), nil),
		} {
			require.ErrorContains(t, err, "obj is nil", "%s: %s", name, verb)
		}
	}
}
