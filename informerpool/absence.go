// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Deletes are delivered only on proof. A 404 for a list is no proof. An ingress
// returns it while its routes load, and a server while it starts. The older of
// two servers returns it for a resource that only the newer one has, and every
// server does for a version that is no longer served, although its objects live
// on in another version. So the informer queries discovery, over the same
// connection, and more than once.
const (
	// minProofs is how many lists and discovery responses in a row have to
	// agree.
	minProofs = 2
	// proofTime is how long they have to agree.
	proofTime = 10 * time.Second
	// builtInProofTime is proofTime for resources of Kubernetes itself: they
	// come and go with the version of a server, and the servers of a cluster
	// are not all upgraded at the same moment.
	builtInProofTime = 2 * time.Minute
	// wordProofTime is proofTime for sources without discovery, where the
	// server's own 404 is the only evidence.
	wordProofTime = 2 * time.Minute
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
func (a *absence) missing(ctx context.Context, s *server, err error) (proven bool, _ error) {
	needed, err := a.evidence(ctx, s, err)
	if needed == 0 {
		return false, err
	}

	if a.proofs++; a.proofs == 1 {
		a.since = time.Now()
	}
	proven = !a.proven && a.proofs >= minProofs && time.Since(a.since) >= needed
	a.proven = a.proven || proven

	return proven, err
}

// evidence returns how long proofs of this kind have to agree; zero if there is
// none, and any before it does not count.
func (a *absence) evidence(ctx context.Context, s *server, err error) (needed time.Duration, _ error) {
	found, supported, unknown := s.discover(ctx)
	switch {
	case !supported && ownWord(err):
		return wordProofTime, err
	case !supported:
	case errors.Is(unknown, ErrEpochChanged):
		return 0, unknown
	case unknown != nil:
		err = fmt.Errorf("%w; it is not known whether the resource exists: %s", err, unknown.Error())
	case found.Served:
		err = fmt.Errorf("%w; discovery has the resource", err)
	case len(found.Versions) > 0:
		err = fmt.Errorf("%w: %w: it is served as %s", ErrOtherVersion, err, strings.Join(found.Versions, ", "))
	case builtIn(s.informer.key.Resource.Group):
		return builtInProofTime, err
	default:
		return proofTime, err
	}

	*a = absence{}
	return 0, err
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

// ownWord reports whether the server itself stated that the resource does not
// exist, as opposed to a client that made up the status.
func ownWord(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	s := status.Status()
	if s.Details == nil {
		return true
	}
	for _, cause := range s.Details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return false
		}
	}

	return true
}
