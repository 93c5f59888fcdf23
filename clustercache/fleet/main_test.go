// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

// inFleet runs a test in virtual time with fake clusters c00, c01 and so on,
// each with the ConfigMaps one and two, that are connected.
func inFleet(t *testing.T, n int, o clustercachetest.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{Fleet: clustercachetest.New(t, o), t: t}
		for i := range n {
			w.clusters = append(w.clusters,
				w.Add(fmt.Sprintf("c%02d", i), configMap("one", "red"), configMap("two", "blue")))
		}
		w.cc = w.ClusterCache()
		w.WaitSynced()
		test(t, w)
	})
}

// world is a fleet with its cache.
type world struct {
	*clustercachetest.Fleet

	t        *testing.T
	clusters []*clustercachetest.Cluster
	cc       *clustercache.ClusterCache
}

// watch watches the ConfigMaps of clusters, or of all of them, and waits until
// they are cached.
func (w *world) watch(clusters ...*clustercachetest.Cluster) {
	w.t.Helper()
	if clusters == nil {
		clusters = w.clusters
	}
	for _, c := range clusters {
		_, err := w.cc.Cluster(c.Key()).Watch(w.t.Context(), &corev1.ConfigMap{})
		require.NoError(w.t, err)
	}
	w.WaitSynced()
}

// list reads the ConfigMaps of the namespace default.
func (w *world) list(opts ...client.ListOption) iter.Seq2[fleet.Item[*corev1.ConfigMap], error] {
	return fleet.List(w.t.Context(), w.cc, &corev1.ConfigMap{}, append(opts, client.InNamespace("default"))...)
}

// lines returns what a read yields: the cluster with the name of each object,
// and with the reason of each error.
func lines(all iter.Seq2[fleet.Item[*corev1.ConfigMap], error]) (out []string) {
	for item, err := range all {
		out = append(out, line(item, err))
	}
	return out
}

func line(item fleet.Item[*corev1.ConfigMap], err error) string {
	if err == nil {
		return item.Cluster.Name + "/" + item.Metadata().GetName()
	}
	of, ok := errors.AsType[*clustercache.ClusterError](err)
	if !ok {
		return err.Error()
	}
	if of.Cluster != item.Cluster || item.Answer == nil || item.Answer.Cluster != of.Cluster {
		return "the error is about another cluster"
	}
	return item.Cluster.Name + ": " + clustercache.ReasonOf(err)
}

func configMap(name, color string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default",
			Name:      name,
			Labels:    map[string]string{"color": color},
		},
		Data: map[string]string{"color": color},
	}
}
