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

// Deletes are delivered only on proof. A list that is answered with 404 is
// none: an ingress says so while its routes load, a server while it starts, the
// older one of a pair of servers of a resource that only the newer one has, and
// every server of a version that is not served any more, whose objects live on
// in another one. So discovery is asked, over the same connection, and more
// than once.
const (
	// minProofs is how many lists and answers of discovery in a row have to
	// agree.
	minProofs = 2
	// proofTime is how long they have to.
	proofTime = 10 * time.Second
	// builtInProofTime is the same for what is a part of Kubernetes: its
	// resources come and go with the version of a server, and not every server
	// of a cluster is upgraded in the same moment.
	builtInProofTime = 2 * time.Minute
	// wordProofTime is the same for sources without discovery, which have
	// nothing but the server's word.
	wordProofTime = 2 * time.Minute
)

// Discoverer is implemented by sources that can ask a server which resources it
// serves. Without it an informer keeps its objects until the server has said
// for two minutes, in a status of its own, that there is no such resource. A
// client that invents the status for an answer that has none (client-go's do,
// and mark it) never proves anything.
type Discoverer interface {
	// Discover asks the server anew, over the connection that lists and watches
	// use, about the resource of the request. An error says that there was no
	// answer to rely on.
	Discover(ctx context.Context, r Request) (Discovery, error)
}

// Discovery is what a server says of a resource.
type Discovery struct {
	// Served reports that the resource is served in the version asked for.
	Served bool
	// Versions are the other versions of its group that it is served in.
	Versions []string
}

// absence gathers the proof that a resource does not exist any more.
type absence struct {
	since  time.Time // of the first proof
	proofs int       // in a row
	proven bool
}

// missing looks into a list that was answered with 404, and takes the objects
// away if that is proven. It returns the error with what is known of the cause.
func (f *feed) missing(ctx context.Context, err error) error {
	needed := wordProofTime
	if source, ok := f.options.Source.(Discoverer); ok {
		needed = proofTime
		if builtIn(f.key.Resource.Group) {
			needed = builtInProofTime
		}
		var found Discovery
		unknown := f.pool.callApart("Source", f.key, func() (err error) {
			found, err = source.Discover(ctx, Request{Key: f.key, Epoch: f.known})
			return err
		})
		switch {
		case errors.Is(unknown, ErrEpochChanged):
			return unknown
		case unknown != nil:
			f.absent = absence{}
			return fmt.Errorf("%w; it is not known whether the resource exists: %s", err, unknown.Error())
		case found.Served:
			f.absent = absence{}
			return fmt.Errorf("%w; discovery has the resource", err)
		case len(found.Versions) > 0:
			f.absent = absence{}
			return fmt.Errorf("%w: %w: it is served as %s", ErrOtherVersion, err, strings.Join(found.Versions, ", "))
		}
	} else if !ownWord(err) {
		f.absent = absence{}
		return err
	}
	if f.absent.proofs++; f.absent.proofs == 1 {
		f.absent.since = time.Now()
	}
	if !f.absent.proven && f.absent.proofs >= minProofs && time.Since(f.absent.since) >= needed {
		f.absent.proven = true
		f.resume = ""
		f.vanish()
	}
	return err
}

// due returns how long to wait at most for the next proof.
func (a *absence) due() (time.Duration, bool) {
	return proofTime / 2, a.proofs > 0 && !a.proven
}

// builtIn reports whether an API group is a part of Kubernetes by its name.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// ownWord reports whether the server itself said in a status that the resource
// does not exist, rather than a client about an answer that was none.
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
