// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// hubReader answers reads of metadata by a function.
type hubReader struct {
	client.Reader
	get func(obj *metav1.PartialObjectMetadata) error
}

func (h hubReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	o := obj.(*metav1.PartialObjectMetadata)
	o.Namespace, o.Name = key.Namespace, key.Name
	return h.get(o)
}

func TestOwnerExistsReportsGoneOnlyWhereTheHubSaysSo(t *testing.T) {
	now := metav1.Now()
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "o")
	for name, tc := range map[string]struct {
		get   func(*metav1.PartialObjectMetadata) error
		inUse bool
		err   bool
	}{
		"there":     {func(*metav1.PartialObjectMetadata) error { return nil }, true, false},
		"not found": {func(*metav1.PartialObjectMetadata) error { return notFound }, false, false},
		"being deleted": {func(o *metav1.PartialObjectMetadata) error {
			o.DeletionTimestamp = &now
			return nil
		}, true, false},
		"forbidden": {func(*metav1.PartialObjectMetadata) error {
			return apierrors.NewForbidden(schema.GroupResource{}, "o", nil)
		}, false, true},
		"a gateway's page": {func(*metav1.PartialObjectMetadata) error {
			return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "o", "<html>",
				0, true)
		}, false, true},
		"unreachable": {func(*metav1.PartialObjectMetadata) error { return context.DeadlineExceeded }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := clustercache.Owner{}
			inUse, err := clustercache.OwnerExists(hubReader{get: func(o *metav1.PartialObjectMetadata) error {
				asked = clustercache.Owner{GVK: o.GroupVersionKind(), ObjectKey: client.ObjectKeyFromObject(o)}
				return tc.get(o)
			}})(t.Context(), fleettest.Owner("o"))
			require.Equal(t, fleettest.Owner("o"), asked)
			require.Equal(t, tc.inUse, inUse)
			require.Equal(t, tc.err, err != nil)
		})
	}
	_, err := clustercache.OwnerExists(hubReader{})(t.Context(), clustercache.Owner{ObjectKey: fleettest.Key("a")})
	require.ErrorContains(t, err, "fleet/a")
}

func TestOwnerOfReturnsKindAndName(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n"}}
	o, err := clustercache.OwnerOf(cm, scheme.Scheme)
	require.NoError(t, err)
	require.Equal(t, "v1 ConfigMap ns/n", o.String())
	require.Equal(t, "Owner: v1 ConfigMap ns/n", fmt.Sprintf("Owner: %v", o))
	var line string
	log := funcr.New(func(_, args string) { line = args }, funcr.Options{})
	log.Info("m", "owner", o)
	require.Contains(t, line, `"kind"="ConfigMap" "namespace"="ns" "name"="n"`)
	for _, bad := range []client.Object{nil, (*corev1.ConfigMap)(nil), clustercache.Kind(schema.GroupVersionKind{})} {
		_, err = clustercache.OwnerOf(bad, scheme.Scheme)
		require.Error(t, err)
	}
}

// TestOwnerThatVanishesIsFoundAndAnErrorNeverCollects: the owner is not
// dropped. While the hub does not answer nothing ends, however long that takes;
// once it has answered twice that the owner is gone, everything does.
func TestOwnerThatVanishesIsFoundAndAnErrorNeverCollects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hub atomic.Value
		hub.Store("there")
		var looks atomic.Int64
		cc, apis := fleettest.NewFleet(t, 1, func(o *clustercache.Options) {
			o.GC.InUse = clustercache.OwnerExists(hubReader{get: func(o *metav1.PartialObjectMetadata) error {
				looks.Add(1)
				switch hub.Load() {
				case "broken":
					return errors.New("hub does not answer")
				case "gone":
					return apierrors.NewNotFound(schema.GroupResource{}, o.Name)
				}
				return nil
			}})
		})
		fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"))
		require.NoError(t, cc.WaitForSync(t.Context(), fleettest.Owner("o")))
		time.Sleep(time.Hour)
		require.Equal(t, 1, apis[0].Count("stream "+fleettest.PathOf("ConfigMap")))
		require.Equal(t, 1, apis[0].Watching(fleettest.PathOf("ConfigMap")))
		require.InDelta(t, 14, float64(looks.Load()), 4, "2, 4, 8, ... 512 s")

		hub.Store("broken")
		time.Sleep(time.Hour)
		_, err := cc.Sweep(t.Context())
		require.ErrorContains(t, err, "hub does not answer")
		require.Equal(t, 1, apis[0].Watching(fleettest.PathOf("ConfigMap")))
		require.ErrorContains(t, cc.Usage().Owners[0].LastError, "hub does not answer")

		hub.Store("gone")
		_, err = cc.Sweep(t.Context())
		require.NoError(t, err)
		require.NotZero(t, cc.Usage().Owners[0].GoneSince)
		require.Equal(t, 1, apis[0].Watching(fleettest.PathOf("ConfigMap")), "one answer does not suffice")
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.Zero(t, apis[0].Watching(fleettest.PathOf("ConfigMap")))
		require.Empty(t, cc.Usage().Owners)
	})
}

// TestOwnerThatDeclaresKeepsWhatItNeeds, whatever is said of it.
func TestOwnerThatDeclaresKeepsWhatItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 1, func(o *clustercache.Options) {
			o.GC.InUse = func(context.Context, clustercache.Owner) (bool, error) { return false, nil }
		})
		for range 100 {
			fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"))
			time.Sleep(20 * time.Second)
		}
		require.Equal(t, 1, apis[0].Count("stream "+fleettest.PathOf("ConfigMap")))
		require.Equal(t, 1, apis[0].Watching(fleettest.PathOf("ConfigMap")))
	})
}
