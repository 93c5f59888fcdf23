// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Deployment returns Deployment number i as written with kubectl apply, with
// the status that its controller writes.
func (g Generator) Deployment(i int) *appsv1.Deployment {
	own, name := g.random(ownOfDeployment, i), appName(i)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: NamespaceOf(i),
			Labels:    appLabels(name),
			Annotations: map[string]string{
				"deployment.kubernetes.io/revision": fmt.Sprint(1 + own.IntN(40)),
			},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas:                new(int32(g.replicas())),
			Selector:                &metav1.LabelSelector{MatchLabels: appLabels(name)},
			Template:                g.podTemplate(i),
			RevisionHistoryLimit:    new(int32(10)),
			ProgressDeadlineSeconds: new(int32(600)),
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge:       new(intstr.FromString("25%")),
					MaxUnavailable: new(intstr.FromString("25%")),
				},
			},
		},
	}
	n := *d.Spec.Replicas
	at := moment(own)
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: 1,
		Replicas:           n,
		UpdatedReplicas:    n,
		ReadyReplicas:      n,
		AvailableReplicas:  n,
		Conditions: []appsv1.DeploymentCondition{
			{
				Type:               appsv1.DeploymentAvailable,
				Status:             corev1.ConditionTrue,
				Reason:             "MinimumReplicasAvailable",
				Message:            "Deployment has minimum availability.",
				LastUpdateTime:     at,
				LastTransitionTime: at,
			},
			{
				Type:   appsv1.DeploymentProgressing,
				Status: corev1.ConditionTrue,
				Reason: "NewReplicaSetAvailable",
				Message: fmt.Sprintf("ReplicaSet %q has successfully progressed.",
					name+"-"+word(g.random(sharedByApp, i), 10)),
				LastUpdateTime:     at,
				LastTransitionTime: at,
			},
		},
	}

	return d
}

// ReplicaSet returns ReplicaSet number i, that of Deployment number i.
func (g Generator) ReplicaSet(i int) *appsv1.ReplicaSet {
	own, name := g.random(ownOfReplicaSet, i), appName(i)
	hash := word(g.random(sharedByApp, i), 10)
	labels := appLabels(name)
	labels["pod-template-hash"] = hash
	n := int32(g.replicas())
	r := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name + "-" + hash,
			Namespace: NamespaceOf(i),
			Labels:    labels,
			Annotations: map[string]string{
				"deployment.kubernetes.io/desired-replicas": fmt.Sprint(n),
				"deployment.kubernetes.io/max-replicas":     fmt.Sprint(n + 2),
				"deployment.kubernetes.io/revision":         fmt.Sprint(1 + own.IntN(40)),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion:         "apps/v1",
				Kind:               "Deployment",
				Name:               name,
				UID:                types.UID(uid(own)),
				Controller:         new(true),
				BlockOwnerDeletion: new(true),
			}},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(n),
			Selector: &metav1.LabelSelector{MatchLabels: maps.Clone(labels)},
			Template: g.podTemplate(i),
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas:             n,
			FullyLabeledReplicas: n,
			ReadyReplicas:        n,
			AvailableReplicas:    n,
			ObservedGeneration:   1,
		},
	}
	r.Spec.Template.Labels = maps.Clone(labels)

	return r
}

// moment returns a random time of a year.
func moment(r *rand.Rand) metav1.Time {
	return metav1.NewTime(time.Date(2025, 1, 1+r.IntN(365), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC))
}
