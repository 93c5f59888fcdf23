// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// keyOf returns the key of a selection in a cluster.
func keyOf(cluster client.ObjectKey, s wants.Selection) status.WatchKey {
	return status.WatchKey{
		Cluster:       cluster,
		GVK:           s.GVK,
		Namespace:     s.Namespace,
		LabelSelector: s.LabelSelector,
		FieldSelector: s.FieldSelector,
	}
}

// selectionOf returns the selection of a key.
func selectionOf(k status.WatchKey) wants.Selection {
	return wants.Selection{
		GVK:           k.GVK,
		Namespace:     k.Namespace,
		LabelSelector: k.LabelSelector,
		FieldSelector: k.FieldSelector,
	}
}

func compareWatchKeys(a, b status.WatchKey) int {
	return cmp.Or(clustername.Compare(a.Cluster, b.Cluster), selectionOf(a).Compare(selectionOf(b)))
}

// Use is a snapshot of a watch and of its users.
type Use struct {
	Key status.WatchKey `json:"key"`
	// Owners are the owners that declared it, sorted.
	Owners []Owner `json:"owners,omitempty"`
	// UnusedSince is when its last owner gave it up. Zero while it has owners.
	UnusedSince time.Time `json:"unusedSince,omitzero"`
	// LastRead is when WatchAndRead or a read in mode AutoWatch last used it.
	LastRead time.Time `json:"lastRead,omitzero"`
	// References counts one for all owners together, one for all reads in mode
	// AutoWatch, and one for each Watch.
	References int `json:"references"`
	// Synced is what [Watch.HasSynced] reports.
	Synced bool `json:"synced"`
	// LastError is what keeps the watch from being up to date, and Message its
	// text.
	LastError error  `json:"-"`
	Message   string `json:"message,omitempty"`
}

// OwnerUse is a snapshot of one owner.
type OwnerUse struct {
	Owner Owner `json:"owner"`
	// Uses are the declared watches that are in effect, sorted.
	Uses []status.WatchKey `json:"uses"`
	// NextLook is when the owner is next checked (GC.InUse). Zero while it is.
	NextLook time.Time `json:"nextLook,omitzero"`
	// GoneSince is when it was first found gone, if it still is.
	GoneSince time.Time `json:"goneSince,omitzero"`
	// LastError is why the last check was inconclusive, and Message its text.
	LastError error  `json:"-"`
	Message   string `json:"message,omitempty"`
}

// Usage is a snapshot of all watches and of their users. It holds no
// credentials.
type Usage struct {
	// Owners are the owners that use something, sorted.
	Owners []OwnerUse `json:"owners"`
	// Uses are all watches, sorted: of declarations, of a Watch, and of reads
	// in mode AutoWatch.
	Uses []Use `json:"uses"`
}

// use returns a snapshot of a watch, without its owners.
func (c *cluster) use(w *wants.Want) Use {
	s := c.watchStatus(w)
	u := Use{
		Key:        keyOf(c.key, w.Selection),
		References: s.References,
		Synced:     s.Informer.Synced,
		LastError:  s.LastError,
		LastRead:   c.wants.LastRead(w),
	}
	u.Message = text(u.LastError)
	return u
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// namesOf returns the names of clusters.
func namesOf(keys []client.ObjectKey) (names []string) {
	for _, key := range keys {
		names = append(names, clusterName(key))
	}
	return names
}
