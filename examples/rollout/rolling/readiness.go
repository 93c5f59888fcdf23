// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetcache/fleetcache/examples/rollout/api"
)

// judge reports whether an object is ready, has failed, or neither yet, and
// why. It understands Deployments and the conditions Ready, Available, Complete
// and Failed that other kinds use; an object without any of them is ready.
func judge(u *unstructured.Unstructured) (state api.State, why string) {
	if u == nil {
		return api.ClusterProgressing, "it does not exist"
	}
	observed, reports, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	deployment := u.GroupVersionKind().Group == "apps" && u.GetKind() == "Deployment"
	if (reports || deployment) && observed < u.GetGeneration() {
		return api.ClusterProgressing, "its controller has not seen it"
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, value := range conditions {
		c, _ := value.(map[string]any)
		kind, status, reason := c["type"], c["status"], c["reason"]
		switch {
		case kind == "Failed" && status == "True", kind == "Progressing" && reason == "ProgressDeadlineExceeded":
			return api.ClusterFailed, fmt.Sprintf("%v: %v", reason, c["message"])
		case (kind == "Ready" || kind == "Available" || kind == "Complete") && status != "True" && !deployment:
			state, why = api.ClusterProgressing, fmt.Sprintf("%v: %v", reason, c["message"])
		}
	}
	if deployment {
		return judgeDeployment(u)
	}
	if state == "" {
		state = api.ClusterReady
	}
	return state, why
}

// judgeDeployment judges a Deployment that has not failed, and whose controller
// has seen it.
func judgeDeployment(u *unstructured.Unstructured) (api.State, string) {
	wanted, given, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if !given {
		wanted = 1
	}
	all, _, _ := unstructured.NestedInt64(u.Object, "status", "replicas")
	updated, _, _ := unstructured.NestedInt64(u.Object, "status", "updatedReplicas")
	available, _, _ := unstructured.NestedInt64(u.Object, "status", "availableReplicas")
	switch {
	case updated < wanted:
		return api.ClusterProgressing, fmt.Sprintf("%d of %d replicas are updated", updated, wanted)
	case all > updated:
		return api.ClusterProgressing, fmt.Sprintf("%d old replicas have not ended", all-updated)
	case available < updated:
		return api.ClusterProgressing, fmt.Sprintf("%d of %d replicas are available", available, wanted)
	}
	return api.ClusterReady, ""
}
