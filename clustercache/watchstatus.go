// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/informerpool"
)

// WatchStatus is a snapshot of one watch.
type WatchStatus struct {
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
	// LastError is why Mapped is false, if mapping was tried, or the error that
	// interrupted the informer; as text in JSON.
	LastError error `json:"-"`
	// References counts the references to the same watch.
	References int `json:"references"`
	// Informer is the status of the informer, which may also serve wider
	// watches.
	Informer informerpool.Status `json:"informer,omitzero"`
}

// MarshalJSON implements json.Marshaler: the cluster, the kind and the error
// are text.
func (s WatchStatus) MarshalJSON() ([]byte, error) {
	type plain WatchStatus
	return json.Marshal(struct {
		Cluster    string `json:"cluster"`
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		plain

		LastError string `json:"lastError,omitempty"`
	}{
		Cluster:    clusterName(s.Cluster),
		APIVersion: s.GVK.GroupVersion().String(),
		Kind:       s.GVK.Kind,
		plain:      plain(s),
		LastError:  errorText(s.LastError),
	})
}

func (c *cluster) watchStatus(w *watchset.Want) WatchStatus {
	lease, _, err := c.wants.Look(w)
	s := WatchStatus{
		Cluster:       c.key,
		GVK:           w.GVK,
		Namespace:     w.Namespace,
		LabelSelector: w.LabelSelector,
		FieldSelector: w.FieldSelector,
		Mapped:        lease != nil,
		LastError:     err,
		References:    c.wants.References(w),
	}
	if lease != nil {
		s.Informer = lease.Status()
		s.Informer.Synced = s.Informer.Synced && s.Informer.Epoch == c.conn.View().Epoch
		s.LastError = s.Informer.LastError
	}
	return s
}
