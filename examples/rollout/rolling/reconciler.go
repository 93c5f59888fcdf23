// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/examples/rollout/api"
)

// parallel is how many clusters of a wave are served at once.
const parallel = 20

// Reconciler reconciles Rollouts.
type Reconciler struct {
	// Hub reads Rollouts and Modules, and writes the status of Rollouts.
	Hub client.Client
	// Clusters are the remote clusters.
	Clusters *clustercache.ClusterCache
}

var _ reconcile.Reconciler = (*Reconciler)(nil)

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	rollout := &api.Rollout{}
	err := r.Hub.Get(ctx, req.NamespacedName, rollout)
	if apierrors.IsNotFound(err) || err == nil && !rollout.DeletionTimestamp.IsZero() {
		r.Clusters.Drop(ownerOf(req.NamespacedName)) // what was applied stays
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	status, err := r.roll(ctx, rollout)
	status.ObservedGeneration = rollout.Generation
	if !equality.Semantic.DeepEqual(status, rollout.Status) {
		before := rollout.DeepCopy()
		rollout.Status = status
		err = errors.Join(err, client.IgnoreNotFound(r.Hub.Status().Patch(ctx, rollout, client.MergeFrom(before))))
	}
	return reconcile.Result{}, err
}

// roll declares what the Rollout needs, serves the waves that have begun, and
// returns the new status. After an error it has to be called again.
func (r *Reconciler) roll(ctx context.Context, rollout *api.Rollout) (api.RolloutStatus, error) {
	module := &api.Module{}
	key := client.ObjectKey{Namespace: rollout.Namespace, Name: rollout.Spec.Module}
	if err := r.Hub.Get(ctx, key, module); err != nil {
		if apierrors.IsNotFound(err) { // its event leads here again
			status := rollout.Status
			status.Phase, status.Message = api.Failed, fmt.Sprintf("there is no Module %s", key.Name)
			return status, nil
		}
		return rollout.Status, err
	}
	wanted, err := contentOf(module, rollout)
	if err != nil { // so does a change of the Module
		status := rollout.Status
		status.Phase, status.Message = api.Failed, err.Error()
		return status, nil
	}
	_, err = r.Clusters.Declare(ctx, ownerOf(client.ObjectKeyFromObject(rollout)), targets(rollout, wanted.kinds)...)

	status := api.RolloutStatus{Version: wanted.version}
	blocked := ""
	for _, wave := range rollout.Spec.Waves {
		served, waveErr := r.serve(ctx, rollout.Namespace, wave, wanted, blocked == "")
		err = errors.Join(err, waveErr)
		status.Clusters = append(status.Clusters, served...)
		if blocked == "" {
			blocked = blocks(wave, served)
		}
	}
	status.Phase, status.Message = summary(status.Clusters, blocked)
	return status, err
}

// serve brings the clusters of a wave to the wanted state, at the same time. Of
// a wave that has not begun, it only reports what is known without a request.
func (r *Reconciler) serve(
	ctx context.Context, namespace string, wave api.Wave, wanted *content, begun bool,
) ([]api.ClusterStatus, error) {
	statuses, errs := make([]api.ClusterStatus, len(wave.Clusters)), make([]error, len(wave.Clusters))
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i, name := range wave.Clusters {
		remote := remote{clusters: r.Clusters, key: client.ObjectKey{Namespace: namespace, Name: name}}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if begun {
				statuses[i], errs[i] = remote.bring(ctx, wanted)
			} else {
				statuses[i] = remote.wait(ctx, wanted)
			}
			statuses[i].Name, statuses[i].Wave = name, wave.Name
		})
	}
	wg.Wait()

	return statuses, errors.Join(errs...)
}
