// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// outcome is what becomes of a request.
type outcome string

const (
	dropped outcome = "dropped"
	parked  outcome = "parked"
	failed  outcome = "failed" // and retried, counted and logged by controller-runtime
)

func outcomeOf(result reconcile.Result, err error) outcome {
	switch {
	case err != nil:
		return failed
	case result.RequeueAfter > 0:
		return parked
	}
	return dropped
}

// readOf is the error of a read in a cluster.
func readOf(cc *clustercache.ClusterCache, cluster string) error {
	return cc.Cluster(fleettest.Key(cluster)).Reader().Get(context.Background(), fleettest.Key("x"),
		&corev1.ConfigMap{})
}

// clusterError is an error about a cluster.
func clusterError(cluster string, cause error) error {
	return &clustercache.ClusterError{Cluster: fleettest.Key(cluster), Op: "get", Err: cause}
}

// TestHazardErrorOfAnotherClusterDecidesARequest: a reconciler of one cluster
// uses another one as well. Only what is said of the request's own cluster, and
// of nothing else, drops or parks the request.
func TestHazardErrorOfAnotherClusterDecidesARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, dead, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewAPI(t, "uid-b"), fleettest.NewDirectory()
		dead.Die()
		d.Set(fleettest.Key("up"), api.Config())
		d.Set(fleettest.Key("down"), dead.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("up")).Engage())
		require.NoError(t, cc.Cluster(fleettest.Key("down")).Engage())
		time.Sleep(time.Minute)

		unknown, gone := clustercache.ErrUnknownCluster, clustercache.ErrNotConnected
		_, noClient := cc.Cluster(fleettest.Key("nobody")).Client()
		others := errors.New("its own trouble")
		selected, err := labels.Parse("env=prod")
		require.NoError(t, err)
		for name, tc := range map[string]struct {
			of   string
			err  error
			want outcome
		}{
			"client of an unknown one": {"up", noClient, failed},
			"read of an unknown one":   {"up", readOf(cc, "nobody"), failed},
			"wrapped":                  {"up", fmt.Errorf("copy: %w", readOf(cc, "nobody")), failed},
			"read of a lost one":       {"up", readOf(cc, "down"), failed},
			"both are lost": {"down",
				errors.Join(readOf(cc, "down"), clusterError("other", gone)), failed},
			"lost, and the other unknown": {"down", errors.Join(readOf(cc, "down"), readOf(cc, "nobody")), failed},
			"both in one": {"down",
				fmt.Errorf("%w: %w", readOf(cc, "down"), readOf(cc, "nobody")), failed},
			"both in an aggregate": {"down",
				utilerrors.NewAggregate([]error{readOf(cc, "down"), readOf(cc, "nobody")}), failed},
			"an aggregate of an unknown one": {"up", utilerrors.NewAggregate([]error{noClient}), failed},
			"a target elsewhere": {"up",
				&clustercache.TargetError{Cluster: fleettest.Key("down"), Err: gone}, failed},
			"a target everywhere": {"up", &clustercache.TargetError{ClusterSelector: selected, Err: gone}, failed},
			"nobody says who":     {"up", fmt.Errorf("wrapped: %w", unknown), failed},
			"lost, and more":      {"down", errors.Join(readOf(cc, "down"), others), failed},
			"another failure of its own": {"down",
				errors.Join(readOf(cc, "down"), clusterError("down", others)), failed},

			"itself is lost":          {"down", readOf(cc, "down"), parked},
			"itself, twice":           {"down", errors.Join(readOf(cc, "down"), nil, readOf(cc, "down")), parked},
			"itself, in an aggregate": {"down", utilerrors.NewAggregate([]error{readOf(cc, "down")}), parked},
			"itself, with a word":     {"down", fmt.Errorf("%w: %w", others, readOf(cc, "down")), parked},
			"itself, unnamed":         {"up", fmt.Errorf("wrapped: %w", gone), parked},
			"its own target": {"down",
				&clustercache.TargetError{Cluster: fleettest.Key("down"), Err: readOf(cc, "down")}, parked},
			"itself is unknown":     {"up", fmt.Errorf("wrapped: %w", clusterError("up", unknown)), dropped},
			"itself, and a request": {"up", errors.Join(clusterError("up", unknown), others), failed},
		} {
			r := controller.PerCluster(cc, func(client.Client) reconcile.Reconciler {
				return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					return reconcile.Result{}, tc.err
				})
			})
			require.Error(t, tc.err, name)
			result, err := r.Reconcile(t.Context(), controller.Request{Cluster: fleettest.Key(tc.of)})
			require.Equal(t, tc.want, outcomeOf(result, err), name)
			if err != nil {
				require.Equal(t, tc.err, err, name)
			}
		}
	})
}

// TestHazardOwnerOfAnotherClusterDecidesARequest: a write to a cluster that
// another replica owns fails for as long as that lasts.
func TestHazardOwnerOfAnotherClusterDecidesARequest(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	notOwner := func(cluster string) error {
		return clusterError(cluster, &ownership.NotOwnerError{Cluster: fleettest.Key(cluster)})
	}
	for name, tc := range map[string]struct {
		err  error
		want outcome
	}{
		"of another":        {notOwner("b"), failed},
		"of another, alone": {&ownership.NotOwnerError{Cluster: fleettest.Key("b")}, failed},
		"of both":           {errors.Join(notOwner("a"), notOwner("b")), failed},
		"its own":           {notOwner("a"), parked},
		"its own, alone":    {&ownership.NotOwnerError{Cluster: fleettest.Key("a")}, parked},
		"its own, explained": {clusterError("a", fmt.Errorf("%w: %w",
			&ownership.NotOwnerError{Cluster: fleettest.Key("a")}, context.DeadlineExceeded)), parked},
		"unnamed": {clustercache.ErrNotOwner, parked},
	} {
		r := controller.WhileOwned(cc, func(r controller.Request) client.ObjectKey { return r.Cluster },
			reconcile.TypedFunc[controller.Request](
				func(context.Context, controller.Request) (reconcile.Result, error) {
					return reconcile.Result{}, tc.err
				}))
		result, err := r.Reconcile(t.Context(), controller.Request{Cluster: fleettest.Key("a")})
		require.Equal(t, tc.want, outcomeOf(result, err), name)
	}
}
