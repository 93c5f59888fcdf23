// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/rollout/api"
)

// appsNamespace is where the remote clusters have the objects of the Module.
const appsNamespace = "apps"

// module returns a version of the Module: a ConfigMap and a Deployment.
func module(version string) (*api.Module, error) {
	var manifests []runtime.RawExtension
	for _, manifest := range []map[string]any{
		{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": appsNamespace, "name": "web"},
			"data":     map[string]any{"greeting": "hello from " + version},
		},
		{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"namespace": appsNamespace, "name": "web"},
			"spec": map[string]any{
				"replicas": 2,
				"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
					"spec": map[string]any{"containers": []any{
						map[string]any{"name": "web", "image": "example.com/web:" + version},
					}},
				},
			},
		},
	} {
		raw, err := json.Marshal(manifest)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, runtime.RawExtension{Raw: raw})
	}
	return &api.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name},
		Spec:       api.ModuleSpec{Version: version, Manifests: manifests},
	}, nil
}

// release changes the Module in the hub to a version.
func (d *demo) release(ctx context.Context, version string) error {
	next, err := module(version)
	if err != nil {
		return err
	}
	current := &api.Module{}
	if err := d.hub.Get(ctx, web, current); err != nil {
		return err
	}
	current.Spec = next.Spec
	return d.hub.Update(ctx, current)
}

// The control planes have no nodes, and no controllers. The demonstration takes
// the part of the controller of Deployments.

// become reports the Deployment of a cluster as available.
func (d *demo) become(ctx context.Context, remote fleet.Cluster) error {
	return report(ctx, remote, func(status *appsv1.DeploymentStatus, replicas int32) {
		status.Replicas, status.UpdatedReplicas = replicas, replicas
		status.ReadyReplicas, status.AvailableReplicas = replicas, replicas
		status.Conditions = []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"},
		}
	})
}

// fail reports that the Deployment of a cluster does not become available.
func (d *demo) fail(ctx context.Context, remote fleet.Cluster) error {
	return report(ctx, remote, func(status *appsv1.DeploymentStatus, replicas int32) {
		status.Replicas, status.UpdatedReplicas = replicas+1, 1
		status.ReadyReplicas, status.AvailableReplicas = replicas, replicas
		status.Conditions = []appsv1.DeploymentCondition{{
			Type:    appsv1.DeploymentProgressing,
			Status:  corev1.ConditionFalse,
			Reason:  "ProgressDeadlineExceeded",
			Message: "the new Pods do not become ready",
		}}
	})
}

func report(ctx context.Context, remote fleet.Cluster, set func(*appsv1.DeploymentStatus, int32)) error {
	deployment := &appsv1.Deployment{}
	err := remote.Client().Get(ctx, client.ObjectKey{Namespace: appsNamespace, Name: "web"}, deployment)
	if err != nil {
		return err
	}
	deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation}
	set(&deployment.Status, *deployment.Spec.Replicas)
	return remote.Client().Status().Update(ctx, deployment)
}
