// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// unlistedError indicates that there is no access to a cluster, and that the
// list that made it known does not have it any more: it is gone, whatever it
// lacks.
type unlistedError struct{ err error }

func (e *unlistedError) Error() string {
	return resolver.ErrClusterNotFound.Error() + ", " + e.err.Error()
}

// Unwrap returns that the cluster is not found, and what was said before.
func (e *unlistedError) Unwrap() []error { return []error{resolver.ErrClusterNotFound, e.err} }

// goneForSure reports whether an error says that there is no such cluster, and
// nothing else. A resolver that asks others may join what they say: one that
// never heard of the cluster proves nothing while another one waits for its
// Secret, or did not answer.
func goneForSure(err error) bool {
	if _, unlisted := errors.AsType[*unlistedError](err); unlisted {
		return true
	}
	return errors.Is(err, resolver.ErrClusterNotFound) && saysGone(err)
}

// saysGone reports whether each part of an error says that something was not
// found, and is not merely missing yet. What is not known to say so leaves open
// whether there is such a cluster.
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
		return apierrors.IsNotFound(err) && !ofGateway(err) && !ofSecret(status.Status().Details)
	}
	if known, ok := err.(interface{ Is(target error) bool }); ok && (known.Is(resolver.ErrClusterNotFound) || known.Is(fs.ErrNotExist)) {
		return true
	}
	if is(err, resolver.ErrClusterNotFound) || is(err, fs.ErrNotExist) {
		return true
	}
	inner := errors.Unwrap(err)
	return inner != nil && saysGone(inner)
}

// ofSecret reports whether a status is about a Secret, which may come.
func ofSecret(d *metav1.StatusDetails) bool {
	return d != nil && strings.EqualFold(strings.TrimSuffix(d.Kind, "s"), "secret")
}

// is reports whether an error is another one itself, whatever it wraps: the
// errors that say that a cluster is gone wrap the one that it may come.
func is(err, target error) bool { return slices.Contains([]error{target}, err) }

// partsOf returns what an error joins: those of the standard library do, and
// Kubernetes' aggregates in a way of their own.
func partsOf(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if joined, ok := err.(interface{ Errors() []error }); ok {
		return joined.Errors()
	}
	return nil
}
