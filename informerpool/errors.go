// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/identity"
)

var (
	// ErrReleased indicates that the lease was released. Its informer may have
	// ended, so the lease can no longer be read.
	ErrReleased = errors.New("lease released")
	// ErrClosed indicates that the pool or the subscription was closed.
	ErrClosed = errors.New("closed")
	// ErrNotSynced indicates that the informer's first list is not complete
	// yet. It makes no statement about any object.
	ErrNotSynced = errors.New("not synced")
	// ErrEpochChanged indicates that the cluster's resourceVersions are no
	// longer comparable with those a request was made for: another cluster
	// answers at the endpoint, or its history was rolled back. Sources return
	// it.
	ErrEpochChanged = identity.ErrEpochChanged
	// ErrHistory indicates that the server's resourceVersion is behind the one
	// an informer has already seen, as after a restore of etcd from an older
	// snapshot.
	ErrHistory = errors.New("server history is behind the cache")
	// ErrOutdated indicates that another informer of the resource has shown a
	// later state of an object.
	ErrOutdated = errors.New("another watch has shown a later state")
	// ErrDetached indicates that an informer follows no live watch, and that
	// its last watch did not end with an error.
	ErrDetached = errors.New("no live watch")
	// ErrOtherVersion indicates that the resource is not served in the key's
	// version, but in another version of its group: its objects exist.
	ErrOtherVersion = errors.New("version is not served")
	// ErrStalled indicates that a list or watch carried nothing for longer than
	// the stall time-out.
	ErrStalled = errors.New("stalled")
	// ErrNoIndex indicates that a query names an index that was not added to
	// the informer.
	ErrNoIndex = errors.New("no such index")
	// ErrIndexExists indicates that the informer already has an index of that
	// name.
	ErrIndexExists = errors.New("index exists")
	// ErrIndexPanicked indicates that an index function panicked for an object,
	// or ended its goroutine.
	ErrIndexPanicked = errors.New("index function panicked")
	// ErrVersion indicates that a server does not accept a resourceVersion that
	// it issued, and that the version is not valid: a valid one is a 64-bit
	// number without sign, blanks or leading zeros. The informer lists
	// periodically.
	ErrVersion = errors.New("no resourceVersion")
	// ErrBudget indicates that a list or an informer exceeded a limit on
	// objects, bytes or pages.
	ErrBudget = errors.New("over budget")

	// ErrKind indicates that a server returned objects or a list of another
	// kind than requested. The whole response is refused.
	ErrKind = errors.New("another kind")

	// ErrRefused indicates that the informer refused what the server sent about
	// an object: the object exists, or may exist, and the cache does not know
	// its state. See [Lease.Unknown].
	ErrRefused = errors.New("refused")

	errUnreturned  = fmt.Errorf("Source %w", callback.ErrGoexit)
	errRequired    = errors.New("required")
	errServerOnly  = errors.New("only a server can select by these fields")
	errWait        = errors.New("not yet")
	errAttemptOver = errors.New("attempt over")
	// errTurn is why an informer that was not refused itself does not list yet.
	errTurn  = errors.New("waits for its turn, since the server has too many requests")
	errQuiet = errors.New("nothing happened")
	// errBegun ends a stream that began with the existing objects and is silent,
	// while the cache has others.
	errBegun = errors.New("the beginning of the watch lacks objects")
	// errPolled ends an attempt of an informer whose resource can be listed but
	// not watched. The informer lists again after PollInterval.
	errPolled = errors.New("resource cannot be watched, only polled")
	// errNoStream indicates that a server treated a request for a streamed list
	// as one for a plain watch.
	errNoStream = errors.New("server does not stream lists")
	// errEndless indicates that a server streams a list that does not end.
	errEndless = fmt.Errorf("%w: it began one and did not end it", errNoStream)
	// errUnversioned ends a stream that shows an object without a version. A
	// list in pages shows whether the resource has any.
	errUnversioned = fmt.Errorf("%w: objects have no resourceVersion", errNoStream)
	errLags        = errors.New("server lags behind what was shown")
	errAudited     = errors.New("an audit found a difference")
	// errForbidden ends an attempt whose watch the server would not accept
	// again.
	errForbidden = errors.New("the watch would be refused")
	errEvicted   = errors.New("cluster evicted")
)

// OptionError describes an invalid option.
type OptionError struct {
	Field string
	Err   error
}

var errNilHandler = errors.New("is nil")

// Error implements error.
func (e *OptionError) Error() string {
	return fmt.Sprintf("informerpool: option %s: %v", e.Field, e.Err)
}

// Unwrap returns the cause.
func (e *OptionError) Unwrap() error { return e.Err }

// permanent reports whether waiting longer is unlikely to help: a rule, a
// definition or the key has to change. The informer keeps trying all the same,
// since such a change is possible.
func permanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsNotAcceptable(err) ||
		meta.IsNoMatchError(err) || errors.Is(err, ErrBudget) || errors.Is(err, ErrKind) || errors.Is(err, ErrRefused)
}
