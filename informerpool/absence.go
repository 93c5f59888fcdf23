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

// Discoverer is implemented by sources that can query a server for the
// resources it serves. Without it an informer keeps its objects until the
// server has reported for two minutes, in a status of its own, that there is no
// such resource. A client that makes up the status for a response that has none
// (client-go's clients do, and mark it) never proves anything.
type Discoverer interface {
	// Discover queries the server again, over the connection that lists and
	// watches use, for the resource of the request. An error means that there
	// was no reliable answer.
	Discover(ctx context.Context, r Request) (Discovery, error)
}

// Discovery is a server's description of a resource.
type Discovery struct {
	// Served reports whether the resource is served in the requested version.
	Served bool
	// Versions are the other versions of its group in which the resource is
	// served.
	Versions []string
}

// absence accumulates the proof that a resource no longer exists.
type absence struct {
	since  time.Time // of the first proof
	proofs int       // in a row
	proven bool
}

// missing investigates a list that failed with 404, and removes the objects if
// the absence is proven. It returns the error, extended by its cause as far as
// it is known.
func (r *reflector) missing(ctx context.Context, err error) error {
	needed := wordProofTime
	if source, ok := r.options.Source.(Discoverer); ok {
		needed = proofTime
		if builtIn(r.informer.key.Resource.Group) {
			needed = builtInProofTime
		}
		var found Discovery
		unknown := r.informer.pool.calls.Apart("Source", &r.informer.key, func() (err error) {
			found, err = source.Discover(ctx, Request{Key: r.informer.key, Epoch: r.at.epoch})
			return err
		})
		switch {
		case errors.Is(unknown, ErrEpochChanged):
			return unknown
		case unknown != nil:
			r.absent = absence{}
			return fmt.Errorf("%w; it is not known whether the resource exists: %s", err, unknown.Error())
		case found.Served:
			r.absent = absence{}
			return fmt.Errorf("%w; discovery has the resource", err)
		case len(found.Versions) > 0:
			r.absent = absence{}
			return fmt.Errorf("%w: %w: it is served as %s", ErrOtherVersion, err, strings.Join(found.Versions, ", "))
		}
	} else if !ownWord(err) {
		r.absent = absence{}
		return err
	}

	if r.absent.proofs++; r.absent.proofs == 1 {
		r.absent.since = time.Now()
	}
	if !r.absent.proven && r.absent.proofs >= minProofs && time.Since(r.absent.since) >= needed {
		r.absent.proven = true
		r.at.relist()
		r.informer.vanish()
	}
	return err
}

// due returns the longest wait for the next proof, and whether one is due.
func (a *absence) due() (time.Duration, bool) {
	return proofTime / 2, a.proofs > 0 && !a.proven
}

// builtIn reports whether an API group is a part of Kubernetes, by its name.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
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
