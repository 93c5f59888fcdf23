// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/fleetcache/fleetcache/internal/clustername"
)

// ErrNoAccess indicates that there is no access to the cluster yet: the objects
// that would describe it do not exist or are not ready. [ErrClusterNotFound],
// [ErrSecretNotFound] and [ErrNotReady] are kinds of it.
var ErrNoAccess = errors.New("no access yet")

var (
	// ErrClusterNotFound indicates that no object of the convention describes
	// the cluster. It is an [ErrNoAccess].
	ErrClusterNotFound error = notYetError("cluster not found")

	// ErrSecretNotFound indicates that the object, or the file, that should
	// hold the credentials does not exist. It is an [ErrNoAccess].
	ErrSecretNotFound error = notYetError("secret not found")

	// ErrNotReady indicates that the cluster exists but is not ready to be
	// contacted. It is an [ErrNoAccess].
	ErrNotReady error = notYetError("cluster is not ready")

	// ErrKeyMissing indicates that the object that should hold the credentials
	// has none of the expected keys.
	ErrKeyMissing = errors.New("key is missing")
)

// notYetError is the text of an error that is an ErrNoAccess.
type notYetError string

func (e notYetError) Error() string { return string(e) }

func (notYetError) Unwrap() error { return ErrNoAccess }

// missingFileError is an ErrSecretNotFound about a file.
type missingFileError struct{}

func (missingFileError) Error() string { return fs.ErrNotExist.Error() }

func (missingFileError) Unwrap() []error { return []error{ErrSecretNotFound, fs.ErrNotExist} }

// AccessError names the cluster, and the object of it, that an error is about.
// All resolvers of this package return their errors in one, except those of a
// context that ended.
type AccessError struct {
	// Cluster is the cluster that was resolved.
	Cluster Cluster
	// Ref is the object at fault; zero if none can be named.
	Ref ObjectRef
	// Err is the cause.
	Err error
}

// Error names the cluster, the object and the cause. It never contains content
// of the object.
func (e *AccessError) Error() string {
	if e.Ref == (ObjectRef{}) {
		return fmt.Sprintf("cluster %s: %v", clustername.Of(e.Cluster), e.Err)
	}
	return fmt.Sprintf("cluster %s: %s: %v", clustername.Of(e.Cluster), e.Ref, e.Err)
}

// Unwrap returns the cause.
func (e *AccessError) Unwrap() error { return e.Err }

// KubeconfigError indicates that the description of the access, a kubeconfig or
// a convention's own format, cannot be understood.
type KubeconfigError struct {
	// Field is the field at fault, such as cluster.server; empty if it is the
	// whole document.
	Field string
	// Reason describes the fault, in words of this package, never in those of
	// the document.
	Reason string
}

// Error names the field and the reason.
func (e *KubeconfigError) Error() string {
	if e.Field == "" {
		return "invalid kubeconfig: " + e.Reason
	}
	return "invalid kubeconfig: " + e.Field + " " + e.Reason
}

// RefusedError indicates that the access was understood but policy refuses it.
// It stays refused until the object or the operator's options change.
type RefusedError struct {
	// Field is the refused field, such as user.exec.
	Field string
	// Reason is the reason for the refusal.
	Reason string
	// Permission is the field of [Allow], in the resolver's options, that would
	// permit it; empty if nothing does.
	Permission string
}

// Error names the field, the reason and the permission.
func (e *RefusedError) Error() string {
	text := "refused: " + e.Field + " " + e.Reason
	if e.Permission != "" {
		text += "; Allow." + e.Permission + " would permit it"
	}
	return text
}

func invalid(field, reason string) error { return &KubeconfigError{Field: field, Reason: reason} }

func refused(field, reason string) error { return &RefusedError{Field: field, Reason: reason} }

// forbidden is refused for what a field of Allow permits.
func forbidden(field, reason, permission string) error {
	return &RefusedError{Field: field, Reason: reason, Permission: permission}
}

func tooBig(field string, limit int) error {
	return invalid(field, fmt.Sprintf("has more than %d bytes, which is MaxBytes of the resolver's options", limit))
}

// fail puts err into an AccessError, unless it is in one already.
func fail(cluster Cluster, ref ObjectRef, err error) error {
	if have, ok := errors.AsType[*AccessError](err); ok && have.Cluster == cluster {
		return err
	}
	return &AccessError{Cluster: cluster, Ref: ref, Err: err}
}
