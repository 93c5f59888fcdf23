// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"time"

	"github.com/fleetcache/fleetcache/clustercache/status"
)

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

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
