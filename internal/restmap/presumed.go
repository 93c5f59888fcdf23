// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// presumptions are the kinds of Kubernetes itself that can be read and watched,
// in versions that are stable, the preferred one first. Their names and scopes
// never change. A server may be older, and lack some.
var presumptions = []struct{ group, version, namespaced, clusterScoped string }{
	{
		"", "v1",
		"ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate ReplicationController " +
			"ResourceQuota Secret Service ServiceAccount",
		"Namespace Node PersistentVolume",
	},
	{"apiregistration.k8s.io", "v1", "", "APIService"},
	{"apps", "v1", "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet", ""},
	{"events.k8s.io", "v1", "Event", ""},
	{"autoscaling", "v2", "HorizontalPodAutoscaler", ""},
	{"autoscaling", "v1", "HorizontalPodAutoscaler", ""},
	{"batch", "v1", "CronJob Job", ""},
	{"certificates.k8s.io", "v1", "", "CertificateSigningRequest"},
	{"networking.k8s.io", "v1", "Ingress NetworkPolicy", "IngressClass IPAddress ServiceCIDR"},
	{"policy", "v1", "PodDisruptionBudget", ""},
	{"rbac.authorization.k8s.io", "v1", "Role RoleBinding", "ClusterRole ClusterRoleBinding"},
	{
		"storage.k8s.io", "v1", "CSIStorageCapacity",
		"CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass",
	},
	{
		"admissionregistration.k8s.io", "v1", "",
		"MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration " +
			"ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
	},
	{"apiextensions.k8s.io", "v1", "", "CustomResourceDefinition"},
	{"scheduling.k8s.io", "v1", "", "PriorityClass"},
	{"coordination.k8s.io", "v1", "Lease", ""},
	{"node.k8s.io", "v1", "", "RuntimeClass"},
	{"discovery.k8s.io", "v1", "EndpointSlice", ""},
	{"resource.k8s.io", "v1", "ResourceClaim ResourceClaimTemplate", "DeviceClass ResourceSlice"},
	{"flowcontrol.apiserver.k8s.io", "v1", "", "FlowSchema PriorityLevelConfiguration"},
}

// presumed returns what is presumed of a server whose discovery does not
// answer.
var presumed = sync.OnceValue(func() *snapshot {
	var core, apis document
	for _, p := range presumptions {
		doc := &apis
		if p.group == "" {
			doc = &core
		}
		if n := len(doc.groups); n == 0 || doc.groups[n-1].name != p.group {
			doc.groups = append(doc.groups, group{name: p.group})
		}
		g := &doc.groups[len(doc.groups)-1]
		v := version{name: p.version}
		for kinds, namespaced := range map[string]bool{p.namespaced: true, p.clusterScoped: false} {
			for kind := range strings.FieldsSeq(kinds) {
				plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
				v.resources = append(v.resources, resource{
					name:       plural.Resource,
					singular:   singular.Resource,
					kind:       kind,
					namespaced: namespaced,
				})
			}
		}
		g.versions = append(g.versions, v)
	}
	return &snapshot{core: part{entry: &entry{doc: &core}}, apis: part{entry: &entry{doc: &apis}}}
})

// presume answers a question about kinds of Kubernetes itself while the server
// has not answered for their part of discovery, but may serve them: it is busy,
// forbids discovery or fails at it.
func (s *snapshot) presume(q question, failed error) []Mapping {
	if !mayServe(failed) {
		return nil
	}
	mixed := *presumed()
	if s != nil && s.core.entry != nil {
		mixed.core = s.core
	}
	if s != nil && s.apis.entry != nil {
		mixed.apis = s.apis
	}
	found, _ := q.look(&mixed)
	for i, m := range found {
		found[i].Presumed = s.group(m.Resource.Group) == nil
	}

	return found
}

// mayServe reports whether a server that fails at discovery with an error may
// serve other requests.
func mayServe(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errors.Is(err, context.DeadlineExceeded)
	}
	code := status.Status().Code
	return code == http.StatusForbidden || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}
