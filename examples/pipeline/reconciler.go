// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
)

// finalizer keeps a Pipeline that is being deleted until its targets are gone.
const finalizer = "pipelines.example/targets"

// reconciler reconciles Pipelines. It keeps no index of targets, and requeues
// nothing: on each run it declares the targets and reads them, and it runs
// again whenever a read could be answered differently. A Pipeline that is being
// deleted deletes its targets, and waits in the same way until they are gone.
type reconciler struct {
	hub      client.Client
	clusters *clustercache.ClusterCache
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	owner := clustercache.Owner{GVK: pipelineKind, ObjectKey: req.NamespacedName}
	p := &Pipeline{}
	if err := r.hub.Get(ctx, req.NamespacedName, p); err != nil {
		if apierrors.IsNotFound(err) {
			r.clusters.Drop(owner) // caches that no other Pipeline needs end
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if p.DeletionTimestamp == nil && controllerutil.AddFinalizer(p, finalizer) {
		if err := r.hub.Update(ctx, p); err != nil {
			return reconcile.Result{}, err
		}
	}
	if _, err := r.clusters.Declare(ctx, owner, p.targets()...); err != nil {
		return reconcile.Result{}, err
	}

	status, failed := r.promote(ctx, p)
	if p.DeletionTimestamp != nil && status.ready() {
		controllerutil.RemoveFinalizer(p, finalizer)
		return reconcile.Result{}, client.IgnoreNotFound(r.hub.Update(ctx, p))
	}
	if equality.Semantic.DeepEqual(status, p.Status) {
		return reconcile.Result{}, failed
	}
	p.Status = status
	return reconcile.Result{}, errors.Join(failed, r.hub.Status().Update(ctx, p))
}

// targets returns what the cache is to watch: the kinds of the targets, each in
// its namespace and cluster.
func (p *Pipeline) targets() (targets []clustercache.Target) {
	for _, e := range p.Spec.Environments {
		for _, t := range e.Targets {
			targets = append(targets, clustercache.Target{
				Cluster: p.cluster(t),
				Kind:    clustercache.Kind(t.kind()),
				Options: []client.ListOption{client.InNamespace(t.Namespace)},
			})
		}
	}
	return targets
}

// cluster returns the key of a target's cluster, which is zero for the hub.
func (p *Pipeline) cluster(t Target) client.ObjectKey {
	if t.Cluster == "" {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: p.Namespace, Name: t.Cluster}
}

func (t Target) kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(t.APIVersion, t.Kind)
}

// object returns the target without its content.
func (t Target) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(t.kind())
	o.SetNamespace(t.Namespace)
	o.SetName(t.Name)
	return o
}

// ready reports whether all environments are.
func (s PipelineStatus) ready() bool {
	return !slices.ContainsFunc(s.Environments, func(e EnvironmentStatus) bool { return !e.Ready })
}

// promote gives the version to each environment that has its turn, and returns
// the state of all of them. If the Pipeline is being deleted, an environment is
// ready once its targets are gone. The error is of requests that are worth
// another attempt.
func (r *reconciler) promote(ctx context.Context, p *Pipeline) (status PipelineStatus, failed error) {
	turn := true
	for _, e := range p.Spec.Environments {
		state := EnvironmentStatus{Name: e.Name, Ready: true}
		for _, t := range e.Targets {
			reason, err := r.step(ctx, p, t, turn)
			if reason != "" && state.Ready {
				state.Ready, state.Reason = false, reason
				if err != nil {
					state.Message = err.Error()
				}
			}
			if err != nil && !heals(err) {
				failed = errors.Join(failed, err)
			}
		}
		turn = turn && state.Ready
		status.Environments = append(status.Environments, state)
	}

	return status, failed
}

// heals reports whether the end of an error is an event of the cache.
func heals(err error) bool {
	return clustercache.IsWaiting(err) || meta.IsNoMatchError(err) ||
		apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}

// step returns why a target is not as the Pipeline wants it, or the empty
// string, and does what can be done about that.
func (r *reconciler) step(ctx context.Context, p *Pipeline, t Target, turn bool) (reason string, err error) {
	if p.DeletionTimestamp != nil {
		return r.remove(ctx, p, t)
	}
	return r.follow(ctx, p, t, turn)
}

// remove deletes a target, and returns why it is not gone, or the empty string.
// Only the API server decides that: a cache may not have an object that was
// created a moment ago. A target that waits for its own finalizers leads here
// again by its end.
func (r *reconciler) remove(ctx context.Context, p *Pipeline, t Target) (reason string, err error) {
	remote, err := r.clusters.Cluster(p.cluster(t)).Client()
	if err == nil {
		err = remote.Delete(ctx, t.object())
	}
	switch {
	case err == nil:
		return "Deleting", nil
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return "", nil
	}
	return clustercache.ReasonOf(err), err
}

// follow returns why a target does not run the version of the Pipeline, or the
// empty string. If it is the turn of its environment, the target gets it.
func (r *reconciler) follow(ctx context.Context, p *Pipeline, t Target, turn bool) (reason string, err error) {
	o := t.object()
	if err := r.clusters.Cluster(p.cluster(t)).Reader().Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return clustercache.ReasonOf(err), err
	}
	wanted, _, _ := unstructured.NestedString(o.Object, "spec", "version")
	running, _, _ := unstructured.NestedString(o.Object, "status", "version")
	switch {
	case wanted == p.Spec.Version && running == wanted:
		return "", nil
	case wanted == p.Spec.Version:
		return "NotReady", nil
	case !turn:
		return "Waiting", nil
	}

	remote, err := r.clusters.Cluster(p.cluster(t)).Client()
	if err != nil {
		return clustercache.ReasonOf(err), err
	}
	patch := fmt.Appendf(nil, `{"spec":{"version":%q}}`, p.Spec.Version)
	if err := remote.Patch(ctx, o, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return clustercache.ReasonOf(err), err
	}
	return "Promoting", nil
}
