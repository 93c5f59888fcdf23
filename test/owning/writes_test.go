// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package owning_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// writes are all ways to write by a client.
func writes(c client.Client) map[string]func(context.Context) error {
	m := fleettest.ColoredConfigMap("one", "red")
	pod := &corev1.Pod{ObjectMeta: fleettest.ObjectMeta("pod")}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"b"}}`))
	applied := corev1apply.ConfigMap("one", "default")
	return map[string]func(context.Context) error{
		"create":  func(ctx context.Context) error { return c.Create(ctx, m.DeepCopy()) },
		"dry run": func(ctx context.Context) error { return c.Create(ctx, m.DeepCopy(), client.DryRunAll) },
		"update":  func(ctx context.Context) error { return c.Update(ctx, m.DeepCopy()) },
		"patch":   func(ctx context.Context) error { return c.Patch(ctx, m.DeepCopy(), patch) },
		"apply":   func(ctx context.Context) error { return c.Apply(ctx, applied, client.FieldOwner("o")) },
		"delete":  func(ctx context.Context) error { return c.Delete(ctx, m.DeepCopy()) },
		"delete all of": func(ctx context.Context) error {
			return c.DeleteAllOf(ctx, m, client.InNamespace("default"))
		},
		"status update": func(ctx context.Context) error { return c.Status().Update(ctx, pod.DeepCopy()) },
		"status patch":  func(ctx context.Context) error { return c.Status().Patch(ctx, pod.DeepCopy(), patch) },
		"evict": func(ctx context.Context) error {
			return c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{})
		},
	}
}

// TestWriteToAClusterOfAnotherReplicaSendsNothing also sends no discovery for
// it.
func TestWriteToAClusterOfAnotherReplicaSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		s.StandBy(keyA)
		connected(t, cc, keyA)
		cached, err := cc.Cluster(keyA).Client()
		require.NoError(t, err)
		live, err := cc.Cluster(keyA).LiveClient()
		require.NoError(t, err)
		config, err := cc.Cluster(keyA).TransportConfig()
		require.NoError(t, err)
		set, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)

		refused := func() {
			t.Helper()
			before := apis[0].Total()
			for _, c := range []client.Client{cached, live} {
				for name, write := range writes(c) {
					err := write(t.Context())
					require.ErrorIs(t, err, clustercache.ErrNotOwner, name)
					require.ErrorIs(t, err, sharding.ErrNotOwner, name)
					var of *clustercache.ClusterError
					require.ErrorAs(t, err, &of)
					require.Equal(t, keyA, of.Cluster)
					var typed *ownership.NotOwnerError
					require.ErrorAs(t, err, &typed)
					require.Equal(t, s.Slot(keyA), typed.Slot)
					require.Contains(t, err.Error(), "in cluster fleet/a: slot ")
				}
			}
			_, err := set.CoreV1().ConfigMaps("default").Create(t.Context(), fleettest.ColoredConfigMap("x", "red"),
				metav1.CreateOptions{})
			require.ErrorIs(t, err, clustercache.ErrNotOwner)
			require.Equal(t, before, apis[0].Total())
		}
		refused()

		s.Gain(keyA)
		require.NoError(t, cached.Create(t.Context(), fleettest.ColoredConfigMap("x", "red")))
		require.NoError(t, live.Delete(t.Context(), fleettest.ColoredConfigMap("x", "red")))
		_, err = set.CoreV1().ConfigMaps("default").Create(t.Context(), fleettest.ColoredConfigMap("y", "red"),
			metav1.CreateOptions{})
		require.NoError(t, err)

		s.Drain(keyA, time.Second)
		require.NoError(t, cached.Create(t.Context(), fleettest.ColoredConfigMap("z", "red")), "work ends with a write")
		s.Lose(keyA)
		refused()

		// Reads go on.
		key := client.ObjectKey{Namespace: "default", Name: "y"}
		require.NoError(t, live.Get(t.Context(), key, &corev1.ConfigMap{}))
	})
}

// TestWriteEndsWithTheOwnership has writes that the server does not answer.
func TestWriteEndsWithTheOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		s.Gain(keyA)
		connected(t, cc, keyA)
		c, err := cc.Cluster(keyA).Client()
		require.NoError(t, err)
		config, err := cc.Cluster(keyA).TransportConfig()
		require.NoError(t, err)
		set, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		require.NoError(t, c.Create(t.Context(), fleettest.ColoredConfigMap("x", "red")))
		apis[0].Set(func(r *http.Request) http.HandlerFunc {
			if r.Method == http.MethodGet {
				return nil
			}
			return func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // the server sees the end of requests that it has read
				fakeapi.Hang(w, r)
			}
		})
		ways := map[string]func() error{
			"client": func() error { return c.Create(t.Context(), fleettest.ColoredConfigMap("y", "red")) },
			"transport": func() error {
				_, err := set.CoreV1().ConfigMaps("default").Create(t.Context(), fleettest.ColoredConfigMap("y", "red"),
					metav1.CreateOptions{})
				return err
			},
		}
		for name, write := range ways {
			begin := time.Now()
			s.SetUntil(keyA, begin.Add(5*time.Second))
			require.ErrorIs(t, write(), clustercache.ErrNotOwner, name)
			require.Equal(t, 5*time.Second, time.Since(begin), name)
			require.ErrorIs(t, write(), clustercache.ErrNotOwner, name)
			require.Equal(t, 5*time.Second, time.Since(begin), name)

			s.SetUntil(keyA, time.Time{})
			time.AfterFunc(time.Second, func() { s.Lose(keyA) })
			begin = time.Now()
			require.ErrorIs(t, write(), clustercache.ErrNotOwner, name)
			require.Equal(t, time.Second, time.Since(begin), name)
			s.Gain(keyA)
			synctest.Wait()
		}

		// A write that the caller ends is no loss.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = c.Create(ctx, fleettest.ColoredConfigMap("y", "red"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, clustercache.ErrNotOwner)
	})
}
