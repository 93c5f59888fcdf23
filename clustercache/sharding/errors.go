// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
)

var (
	// ErrNotOwner indicates that this replica does not own the cluster, or no
	// longer does. It is also the cause of contexts of [Sharding.Context] that
	// end with the ownership.
	ErrNotOwner = ownership.ErrNotOwner
	// ErrStarted indicates that Start was called twice.
	ErrStarted = errors.New("sharding started already")
	// ErrClosed indicates that the Sharding was closed before it was started.
	ErrClosed = errors.New("sharding closed")
	// ErrNotLeft indicates that the replica stopped before the hub confirmed
	// that it has left. Others take over once they take it for dead.
	ErrNotLeft = errors.New("stopped without leaving the group")
)

// NotOwnerError is an [ErrNotOwner] that names the cluster.
type NotOwnerError = ownership.NotOwnerError

// NameError indicates that the name of the group is taken: by the group of
// another program, with which this one would share its clusters, or by a Lease
// that has nothing to do with a sharding. The replica has not joined.
type NameError struct {
	// Namespace and Lease are the name of the Lease that is in the way.
	Namespace, Lease string
	// Owner is whose it is, as far as it says.
	Owner string
	// Group and Program are those of this replica.
	Group, Program string
}

// Error implements error.
func (e *NameError) Error() string {
	return fmt.Sprintf("sharding: lease %s/%s belongs to %s, and not to group %q of program %q; "+
		"choose another Options.Name, or delete the lease if nothing uses it",
		e.Namespace, e.Lease, e.Owner, e.Group, e.Program)
}

// GroupError indicates that the group was founded with another number of slots,
// for other clusters, or by an incompatible version. Of replicas that disagree
// about this two could own a cluster, or none, so the later one does not run. To
// change the number of slots or the selector, stop all replicas, and delete the
// Lease that is named here, and no other: tokens go on from those of the slots.
type GroupError struct {
	// Group is the name of the group, and Lease that of its Lease.
	Group, Lease string
	// Slots, Format and Selector are what the group was founded with.
	Slots    int
	Format   string
	Selector string
}

// Error implements error.
func (e *GroupError) Error() string {
	return fmt.Sprintf("sharding: group %s has %d slots, format %q and selector %q, by its lease %s, "+
		"and this replica has others; to change them, stop all replicas, and delete that lease alone",
		e.Group, e.Slots, e.Format, e.Selector, e.Lease)
}

// PermissionError indicates that the hub does not permit this replica what it
// needs to do.
type PermissionError struct {
	// Namespace is where the Leases of the group are.
	Namespace string
	// Verbs are what the replica may not do with them, such as "delete".
	Verbs []string
}

// Error implements error.
func (e *PermissionError) Error() string {
	return fmt.Sprintf("sharding: not permitted to %s leases.coordination.k8s.io in namespace %s",
		strings.Join(e.Verbs, ", "), e.Namespace)
}

// OptionError names an invalid option.
type OptionError struct {
	Field string
	Err   error
}

// Error implements error.
func (e *OptionError) Error() string { return fmt.Sprintf("sharding: option %s: %v", e.Field, e.Err) }

// Unwrap returns the cause.
func (e *OptionError) Unwrap() error { return e.Err }
