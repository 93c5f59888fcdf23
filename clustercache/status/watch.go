// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Watch is a snapshot of one watch.
type Watch struct {
	Cluster client.ObjectKey        `json:"-"` // in JSON: namespace/name
	GVK     schema.GroupVersionKind `json:"-"` // in JSON: apiVersion and kind
	// Namespace, LabelSelector and FieldSelector narrow what is watched of the
	// kind; if they are empty, all of it is.
	Namespace     string `json:"namespace,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Mapped reports whether the cluster has a known resource for the kind.
	// Without it Informer is empty.
	Mapped bool `json:"mapped"`
	// LastError is what keeps the watch from being up to date, if anything
	// does: why Mapped is false, if mapping was tried, the error that
	// interrupted the informer, or why the cluster is not connected. It is nil
	// while the first list is under way. As text in JSON.
	LastError error `json:"-"`
	// References counts the references to the same watch.
	References int `json:"references"`
	// Informer is the status of the informer, which may also serve wider
	// watches. Its Synced has the meaning of clustercache.Watch.HasSynced here, and not
	// that of a lease of the pool: Informer.Objects may be many without it.
	Informer informerpool.Status `json:"informer,omitzero"`
}

// MarshalJSON implements json.Marshaler: the cluster, the kind and the error
// are text.
func (s Watch) MarshalJSON() ([]byte, error) {
	type plain Watch
	return json.Marshal(struct {
		Cluster    string `json:"cluster"`
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		plain

		LastError string `json:"lastError,omitempty"`
	}{
		Cluster:    clustername.Of(s.Cluster),
		APIVersion: s.GVK.GroupVersion().String(),
		Kind:       s.GVK.Kind,
		plain:      plain(s),
		LastError:  text(s.LastError),
	})
}
