// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// unlistedError indicates that there is no access to a cluster, and that the
// list that made the cluster known no longer contains it: the cluster is gone,
// whatever part of its access is missing.
type unlistedError struct{ err error }

func (e *unlistedError) Error() string {
	return resolver.ErrClusterNotFound.Error() + ", " + e.err.Error()
}

// Unwrap returns ErrClusterNotFound and the original error.
func (e *unlistedError) Unwrap() []error { return []error{resolver.ErrClusterNotFound, e.err} }

// goneForSure reports whether an error means that the cluster does not exist,
// and nothing else. A resolver that queries several others may join their
// errors: one that does not know the cluster proves nothing while another waits
// for the cluster's Secret, or did not answer.
func goneForSure(err error) bool {
	if _, unlisted := errors.AsType[*unlistedError](err); unlisted {
		return true
	}
	return errors.Is(err, resolver.ErrClusterNotFound) && saysGone(err)
}

// saysGone reports whether every part of an error means that something does not
// exist, rather than that it is missing so far. A part of unknown meaning
// leaves open whether the cluster exists.
func saysGone(err error) bool {
	parts := partsOf(err)
	for _, part := range parts {
		if !saysGone(part) {
			return false
		}
	}
	if len(parts) > 0 {
		return true
	}
	if status, ok := err.(apierrors.APIStatus); ok {
		return apierrors.IsNotFound(err) && !apistatus.OfGateway(err) && !ofSecret(status.Status().Details)
	}
	if known, ok := err.(interface{ Is(target error) bool }); ok &&
		(known.Is(resolver.ErrClusterNotFound) || known.Is(fs.ErrNotExist)) {
		return true
	}
	if is(err, resolver.ErrClusterNotFound) || is(err, fs.ErrNotExist) {
		return true
	}
	inner := errors.Unwrap(err)

	return inner != nil && saysGone(inner)
}

// ofSecret reports whether a status is about a Secret, which may appear later.
func ofSecret(d *metav1.StatusDetails) bool {
	return d != nil && strings.EqualFold(strings.TrimSuffix(d.Kind, "s"), "secret")
}

// is reports whether err is target itself, and does not unwrap err: the errors
// for a cluster that is gone wrap the error for a cluster that may appear
// later.
func is(err, target error) bool { return slices.Contains([]error{target}, err) }

// partsOf returns the errors that an error joins, as those of the standard
// library and Kubernetes' aggregates do.
func partsOf(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if joined, ok := err.(interface{ Errors() []error }); ok {
		return joined.Errors()
	}
	return nil
}
