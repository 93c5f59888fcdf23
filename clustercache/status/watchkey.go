// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// WatchKey identifies a watch. It is comparable; selectors are in canonical
// form.
type WatchKey struct {
	// Cluster is the cluster; the zero value is the hub.
	Cluster client.ObjectKey
	GVK     schema.GroupVersionKind
	// Namespace is empty for all namespaces.
	Namespace string
	// LabelSelector and FieldSelector are empty if they select everything.
	LabelSelector, FieldSelector string
}

// String returns a short readable form, for logs and errors.
func (k WatchKey) String() string {
	var s strings.Builder
	s.WriteString(wants.KindName(k.GVK) + " in cluster " + clustername.Of(k.Cluster))
	for _, part := range []struct{ name, value string }{
		{"namespace", k.Namespace}, {"labels", k.LabelSelector}, {"fields", k.FieldSelector},
	} {
		if part.value != "" {
			fmt.Fprintf(&s, ", %s %s", part.name, part.value)
		}
	}

	return s.String()
}

// MarshalJSON returns the key with the field names of a manifest.
func (k WatchKey) MarshalJSON() ([]byte, error) {
	type cluster struct {
		Namespace string `json:"namespace,omitempty"`
		Name      string `json:"name,omitempty"`
	}
	version, kind := k.GVK.ToAPIVersionAndKind()
	return json.Marshal(struct {
		Cluster       cluster `json:"cluster"` // empty: the hub
		APIVersion    string  `json:"apiVersion"`
		Kind          string  `json:"kind"`
		Namespace     string  `json:"namespace,omitempty"`
		LabelSelector string  `json:"labelSelector,omitempty"`
		FieldSelector string  `json:"fieldSelector,omitempty"`
	}{cluster(k.Cluster), version, kind, k.Namespace, k.LabelSelector, k.FieldSelector})
}
