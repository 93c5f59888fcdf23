// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Deletes are delivered only on proof. A 404 for a list is no proof. An ingress
// returns it while its routes load, and a server while it starts. The older of
// two servers returns it for a resource that only the newer one has, and every
// server does for a version that is no longer served, although its objects live
// on in another version, and for a resource of an aggregated API whose
// APIService was deleted, although its objects live on behind it. So the
// informer queries discovery, over the same connection, and whether the
// CustomResourceDefinition is gone that defined the resource, and both more than
// once. Resources without a definition never lose their objects that way.
const (
	// minProofs is how many of these responses in a row have to agree.
	minProofs = 2
	// proofTime is how long they have to agree.
	proofTime = 10 * time.Second
)

// absence accumulates the proof that a resource no longer exists.
type absence struct {
	since  time.Time // of the first proof
	proofs int       // in a row
	proven bool
}

// missing investigates a list that failed with 404. It returns the error,
// extended by its cause as far as it is known, and reports whether this proved
// the absence.
func (a *absence) missing(ctx context.Context, s *server, at *cursor, err error) (proven bool, _ error) {
	s.missed = time.Now()
	proof, err := a.evidence(ctx, s, at, err)
	if !proof {
		*a = absence{}
		return false, err
	}

	if a.proofs++; a.proofs == 1 {
		a.since = time.Now()
	}
	proven = !a.proven && a.proofs >= minProofs && time.Since(a.since) >= proofTime
	a.proven = a.proven || proven

	return proven, err
}

// evidence reports whether all responses agree that the resource does not
// exist.
func (a *absence) evidence(ctx context.Context, s *server, at *cursor, err error) (proof bool, _ error) {
	found, supported, unknown := s.discover(ctx)
	switch {
	case !supported:
		return false, err
	case errors.Is(unknown, ErrEpochChanged):
		return false, unknown
	case unknown != nil:
		return false, fmt.Errorf("%w; it is not known whether the resource exists: %s", err, unknown.Error())
	case found.Served:
		return false, fmt.Errorf("%w; discovery has the resource", err)
	case len(found.Versions) > 0:
		return false, fmt.Errorf("%w: %w: it is served as %s", ErrOtherVersion, err, strings.Join(found.Versions, ", "))
	}

	at.relist() // what is served next under this name may be another resource
	if a.proven {
		return true, err // there are no objects any more
	}
	gone, why := s.undefined(ctx)
	switch {
	case gone:
		return true, err
	case errors.Is(why, ErrEpochChanged):
		return false, why
	default:
		return false, fmt.Errorf("%w; discovery lacks the resource; %s", err, why.Error())
	}
}

// due returns the longest wait for the next proof, and whether one is due.
func (a *absence) due() (time.Duration, bool) {
	return proofTime / 2, a.proofs > 0 && !a.proven
}

// builtIn reports whether an API group is a part of Kubernetes, by its name.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// shared reports whether an API group certainly has the store of its cluster, by
// its name: any other may be that of an aggregated API with a store of its own,
// as those of metrics are.
func shared(group string) bool {
	return builtIn(group) && !strings.HasSuffix(group, "metrics.k8s.io")
}
