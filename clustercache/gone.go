// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"slices"

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
// Secret, or did not answer in time.
func goneForSure(err error) bool {
	if _, unlisted := errors.AsType[*unlistedError](err); unlisted {
		return true
	}
	return errors.Is(err, resolver.ErrClusterNotFound) && !mayCome(err)
}

// mayCome reports whether an error has a part that leaves open whether there is
// such a cluster.
func mayCome(err error) bool {
	if parts, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(parts.Unwrap(), mayCome)
	}
	open := []error{resolver.ErrNoAccess, resolver.ErrKeyMissing, context.DeadlineExceeded, context.Canceled}
	switch {
	case err == nil || slices.Contains([]error{resolver.ErrClusterNotFound}, err): // which is an ErrNoAccess
		return false
	case slices.Contains(open, err):
		return true
	}
	return mayCome(errors.Unwrap(err))
}
