// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/remote"
)

const ours, others = "example.com/ours", "example.com/others"

// finalizing runs a test with the client of a cluster that has an object with
// another's finalizer.
func finalizing(t *testing.T, test func(t *testing.T, s *site, c client.Client, obj *corev1.ConfigMap)) {
	t.Helper()
	recording(t, remote.RecorderOptions{}, true, func(t *testing.T, s *site) {
		c, err := s.fleet.ClusterCache().Cluster(s.east.Key()).Client()
		require.NoError(t, err)
		obj := configMap("one")
		obj.UID = ""
		obj.Finalizers = []string{others}
		require.NoError(t, s.east.Client().Create(t.Context(), obj))
		test(t, s, c, obj)
	})
}

// stored returns the finalizers in the cluster.
func (s *site) stored(t *testing.T) []string {
	t.Helper()
	now := configMap("one")
	require.NoError(t, s.east.Client().Get(t.Context(), client.ObjectKeyFromObject(now), now))
	return now.Finalizers
}

// representations are those in which an object may be read.
func representations(t *testing.T, obj *corev1.ConfigMap) map[string]client.Object {
	t.Helper()
	gvk, err := apiutil.GVKForObject(obj, scheme.Scheme)
	require.NoError(t, err)
	untyped := &unstructured.Unstructured{}
	untyped.SetGroupVersionKind(gvk)
	all := map[string]client.Object{
		"typed":        configMap("one"),
		"metadata":     clustercache.Kind(gvk),
		"unstructured": untyped,
	}
	for _, o := range all {
		o.SetNamespace(obj.Namespace)
		o.SetName(obj.Name)
		o.SetUID(obj.UID)
		o.SetResourceVersion(obj.ResourceVersion)
		o.SetFinalizers(obj.Finalizers)
	}
	return all
}

func TestFinalizersAreAddedAndRemoved(t *testing.T) {
	finalizing(t, func(t *testing.T, s *site, c client.Client, obj *corev1.ConfigMap) {
		for name, o := range representations(t, obj) {
			added, err := remote.AddFinalizer(t.Context(), c, o, ours)
			require.NoError(t, err, name)
			require.True(t, added, name)
			require.Equal(t, []string{others, ours}, s.stored(t))
			require.Equal(t, s.stored(t), o.GetFinalizers())

			before := len(s.east.Requests())
			added, err = remote.AddFinalizer(t.Context(), c, o, ours)
			require.NoError(t, err)
			require.False(t, added)
			require.Len(t, s.east.Requests(), before)

			for _, finalizer := range []string{ours, others} {
				removed, err := remote.RemoveFinalizer(t.Context(), c, o, finalizer)
				require.NoError(t, err)
				require.True(t, removed)
				require.Equal(t, s.stored(t), o.GetFinalizers(), "also if none is left")
				removed, err = remote.RemoveFinalizer(t.Context(), c, o, finalizer)
				require.NoError(t, err)
				require.False(t, removed)
			}
			_, err = remote.AddFinalizer(t.Context(), c, o, others)
			require.NoError(t, err)
		}
	})
}

// TestFinalizersOfOthersAreKept, which were added after obj was read.
func TestFinalizersOfOthersAreKept(t *testing.T) {
	finalizing(t, func(t *testing.T, s *site, c client.Client, obj *corev1.ConfigMap) {
		now := obj.DeepCopy()
		now.Finalizers = append(now.Finalizers, "example.com/third")
		require.NoError(t, s.east.Client().Update(t.Context(), now))
		added, err := remote.AddFinalizer(t.Context(), c, obj, ours)
		require.NoError(t, err)
		require.True(t, added)
		require.Equal(t, []string{others, "example.com/third", ours}, s.stored(t))

		now = obj.DeepCopy()
		now.Finalizers = []string{ours}
		require.NoError(t, s.east.Client().Update(t.Context(), now))
		removed, err := remote.RemoveFinalizer(t.Context(), c, obj, ours)
		require.NoError(t, err)
		require.True(t, removed)
		require.Empty(t, s.stored(t))
	})
}

// TestHazardCacheLacksTheFinalizer: the object was read from a cache that does
// not show the finalizer yet.
func TestHazardCacheLacksTheFinalizer(t *testing.T) {
	finalizing(t, func(t *testing.T, s *site, c client.Client, obj *corev1.ConfigMap) {
		stale := obj.DeepCopy()
		_, err := remote.AddFinalizer(t.Context(), c, obj, ours)
		require.NoError(t, err)
		removed, err := remote.RemoveFinalizer(t.Context(), c, stale, ours)
		require.NoError(t, err)
		require.True(t, removed)
		require.Equal(t, []string{others}, s.stored(t))
	})
}

// TestFinalizersOfObjectsThatEnd: none is added to what is being deleted, or to
// another object of the name, and none of these is an error when one is
// removed.
func TestFinalizersOfObjectsThatEnd(t *testing.T) {
	finalizing(t, func(t *testing.T, s *site, c client.Client, obj *corev1.ConfigMap) {
		admin := s.east.Client()
		read := obj.DeepCopy()
		require.NoError(t, admin.Delete(t.Context(), obj))
		_, err := remote.AddFinalizer(t.Context(), c, read.DeepCopy(), ours)
		require.ErrorIs(t, err, remote.ErrDeleting)
		require.ErrorContains(t, err, `add finalizer "example.com/ours" of default/one`)

		removed, err := remote.RemoveFinalizer(t.Context(), c, read.DeepCopy(), others)
		require.NoError(t, err)
		require.True(t, removed)
		_, err = remote.AddFinalizer(t.Context(), c, read.DeepCopy(), ours)
		require.True(t, apierrors.IsNotFound(errors.Unwrap(err)), err)
		removed, err = remote.RemoveFinalizer(t.Context(), c, read.DeepCopy(), others)
		require.NoError(t, err)
		require.False(t, removed)

		next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one",
			Finalizers: []string{others}}}
		require.NoError(t, admin.Create(t.Context(), next))
		_, err = remote.AddFinalizer(t.Context(), c, read.DeepCopy(), ours)
		require.ErrorIs(t, err, remote.ErrReplaced)
		removed, err = remote.RemoveFinalizer(t.Context(), c, read.DeepCopy(), others)
		require.NoError(t, err)
		require.False(t, removed)
		require.Equal(t, []string{others}, s.stored(t))
	})
}

// TestHazardNotFoundIsAboutSomethingElse: a NotFound that is not about the
// object, such as that of an admission webhook that looked for something, does
// not mean that the object or its finalizer is gone. The caller would let go of
// what the finalizer protects.
func TestHazardNotFoundIsAboutSomethingElse(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	answers := map[string]error{
		"another object": apierrors.NewNotFound(configMaps, "policy"),
		"the namespace":  apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default"),
		"a path": apierrors.NewGenericServerResponse(
			http.StatusNotFound, "GET", configMaps, "one", "", 0, true),
		"nothing": &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure,
			Code:   http.StatusNotFound,
			Reason: metav1.StatusReasonNotFound,
		}},
	}
	for about, answer := range answers {
		finalizing(t, func(t *testing.T, s *site, c client.Client, obj *corev1.ConfigMap) {
			watched := asWatch{c}
			denied := interceptor.NewClient(watched, interceptor.Funcs{Patch: func(context.Context,
				client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return answer
			}})
			unread := interceptor.NewClient(watched, interceptor.Funcs{Get: func(context.Context,
				client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return answer
			}})
			for name, o := range representations(t, obj) {
				added, err := remote.AddFinalizer(t.Context(), denied, o, ours)
				require.ErrorIs(t, err, answer, "%s, %s", about, name)
				require.False(t, added)
				removed, err := remote.RemoveFinalizer(t.Context(), denied, o, others)
				require.ErrorIs(t, err, answer, "%s, %s", about, name)
				require.False(t, removed)
				o.SetFinalizers(nil) // so that it is read
				removed, err = remote.RemoveFinalizer(t.Context(), unread, o, others)
				require.ErrorIs(t, err, answer, "%s, %s", about, name)
				require.False(t, removed)
				require.Equal(t, []string{others}, s.stored(t))
			}
		})
	}
}

// asWatch makes a client one that interceptor takes. It does not watch.
type asWatch struct{ client.Client }

// Watch implements client.WithWatch.
func (asWatch) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.ErrUnsupported
}

// TestFinalizerErrorsNameTheirCause: a cluster that is away, and an object that
// never rests.
func TestFinalizerErrorsNameTheirCause(t *testing.T) {
	finalizing(t, func(t *testing.T, s *site, c client.Client, obj *corev1.ConfigMap) {
		restless := interceptor.NewClient(s.east.Client(), interceptor.Funcs{Patch: func(ctx context.Context,
			c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			now := configMap("one")
			require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(now), now))
			now.Data = map[string]string{"at": now.ResourceVersion}
			require.NoError(t, c.Update(ctx, now))
			return c.Patch(ctx, o, p, opts...)
		}})
		_, err := remote.AddFinalizer(t.Context(), restless, obj.DeepCopy(), ours)
		require.True(t, apierrors.IsConflict(err), err)

		s.east.Disconnect()
		s.fleet.WaitSynced()
		_, err = remote.RemoveFinalizer(t.Context(), c, obj, others)
		require.ErrorIs(t, err, clustercache.ErrNotConnected)
		failed := &remote.FinalizerError{}
		require.ErrorAs(t, err, &failed)
		require.Equal(t, []string{"remove", others, "one"}, []string{failed.Op, failed.Finalizer, failed.Object.Name})
		require.Equal(t, []string{others}, obj.Finalizers, "as it was")
	})
}
