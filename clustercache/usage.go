// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// keyOf returns the key of a selection in a cluster.
func keyOf(cluster client.ObjectKey, s watchset.Selection) status.WatchKey {
	return status.WatchKey{
		Cluster:       cluster,
		GVK:           s.GVK,
		Namespace:     s.Namespace,
		LabelSelector: s.LabelSelector,
		FieldSelector: s.FieldSelector,
	}
}

// selectionOf returns the selection of a key.
func selectionOf(k status.WatchKey) watchset.Selection {
	return watchset.Selection{
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
	// UnusedSince is when its last owner gave it up, while it is kept for
	// GC.Grace. Zero while there are owners.
	UnusedSince time.Time `json:"unusedSince,omitzero"`
	// LastRead is when WatchAndRead or a read in mode AutoWatch last used it.
	// Zero if none of these keeps it.
	LastRead time.Time `json:"lastRead,omitzero"`
	// References counts the references to it: one for all owners together, one
	// for all reads in mode AutoWatch, and one for each Watch.
	References int `json:"references"`
	// Synced reports whether it can be read from the cache now, as
	// [Watch.HasSynced] does.
	Synced bool `json:"synced"`
	// LastError is what keeps the watch from being up to date, if anything
	// does. Its text is in Message.
	LastError error  `json:"-"`
	Message   string `json:"message,omitempty"`
}

// OwnerUse is a snapshot of one owner.
type OwnerUse struct {
	Owner Owner `json:"owner"`
	// Uses are the watches that it declared, as far as they are in effect,
	// sorted.
	Uses []status.WatchKey `json:"uses"`
	// NextLook is when the owner is next checked. Zero while that happens, and
	// without GC.InUse.
	NextLook time.Time `json:"nextLook,omitzero"`
	// GoneSince is when it was first found gone, if nothing has contradicted
	// that since.
	GoneSince time.Time `json:"goneSince,omitzero"`
	// LastError is why the last check was inconclusive, if it was. Its text is
	// in Message.
	LastError error  `json:"-"`
	Message   string `json:"message,omitempty"`
}

// Usage is a snapshot of all watches and of their users. It can be written as
// JSON and holds no credentials.
type Usage struct {
	// Owners are the owners that use something, sorted.
	Owners []OwnerUse `json:"owners"`
	// Uses are all watches: those that were declared, those held by a Watch,
	// and those that reads in mode AutoWatch keep; sorted.
	Uses []Use `json:"uses"`
}

// use returns a snapshot of a watch, without its owners.
func (c *cluster) use(w *watchset.Want) Use {
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
