// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

// nobody selects no object: Kubernetes names are no longer than 253 characters,
// and any shorter name could be that of a resource's own object.
const nobody = "metadata.name=fleetcache-history"

// errMute indicates that a stream carried nothing although the same server has
// answered such a question before.
var errMute = errors.New("streams are silent")

// busy reports whether a response concerns the server's current condition
// rather than the request.
func busy(s metav1.Status) bool {
	return s.Code == 401 || s.Code == 408 || s.Code == 429 || s.Code >= 500
}

// currentVersion asks the server for the newest resourceVersion of the
// resource. If lists are streamed, it requests the stream of a name that does
// not exist: the bookmark that ends it is the answer, and the request is no
// LIST. alive reports whether the answer is a sign of life.
func (s *server) currentVersion(ctx context.Context, again bool) (rv string, alive bool, err error) {
	if s.paged() {
		rv, err := s.pagedVersion(ctx, true)
		if apierrors.IsTooManyRequests(err) {
			rv, err = s.busyVersion(ctx, again, err)
		}
		return rv, err == nil, err
	}

	rv, err = s.streamedVersion(ctx)
	if errors.Is(err, errMute) {
		// Lists may work where streams are silent. Their answer concerns the
		// history; it does not show that a watch would carry changes.
		rv, err = s.pagedVersion(ctx, false)
		return rv, false, err
	}
	if !cannotStream(err) {
		return rv, err == nil, err
	}
	// The server is not the one that the cache was listed from: it was upgraded
	// or downgraded, or there are several.
	rv, err = s.pagedVersion(ctx, true)
	if err == nil {
		s.pages()
	}

	return rv, err == nil, err
}

// inquire asks the history question, also for the informers that wait for the
// answer.
func (s *server) inquire(ctx context.Context, q *inquiry, again bool) (current string, err error) {
	testified := ""
	defer func() { s.informer.testimony.conclude(q, testified) }()
	current, alive, err := s.currentVersion(ctx, again)
	if alive {
		testified = current
	}
	return current, err
}

// relies records that the server has answered the history question to another
// informer, as if it had to this one.
func (s *server) relies(on *inquiry) {
	i := s.informer
	s.answers = true
	i.proof(max(i.pool.clock.Of(on.sent), i.signs.proof.Load()))
}

// busyVersion asks by a stream after a list was refused because the server is
// too busy: the server may have time for watches, such as the one that is to be
// resumed. It asks only once in a row, and not where streams are known not to
// work.
func (s *server) busyVersion(ctx context.Context, again bool, refused error) (string, error) {
	if again || s.informer.cluster.pages(s.informer.key.Resource.Group) {
		return "", refused
	}
	rv, err := s.streamedVersion(ctx)
	switch {
	case err == nil:
		return rv, nil
	case cannotStream(err):
		s.pages()
	case errors.Is(err, ErrEpochChanged):
		return "", err
	}

	return "", refused
}

func (s *server) streamedVersion(ctx context.Context) (string, error) {
	opts := streamOptions(s.question())
	// The server should end it before the informer does.
	opts.TimeoutSeconds = new(int64(questionTimeout / time.Second * 2 / 3))
	watch, err := s.open(ctx, opts, questionTimeout)
	if err != nil {
		return "", err
	}
	defer watch.close()

	for {
		frame, err := watch.next()
		silent := errors.Is(err, io.EOF) || errors.Is(err, ErrStalled)
		if silent && !s.ends {
			return "", errNoStream // it was no streamed list, or one without an end
		}
		if silent {
			return "", errMute
		}
		if err != nil {
			return "", err
		}
		if end, it, err := initialEventsEnd(frame); end || err != nil {
			s.ends = s.ends || end
			return it.ResourceVersion, err
		}
	}
}

// pagedVersion asks by a list of one object. proof reports whether a response
// counts as a sign of life.
func (s *server) pagedVersion(ctx context.Context, proof bool) (string, error) {
	opts := metav1.ListOptions{}
	if s.informer.name != "" {
		opts = s.listOptions()
	}
	opts.Limit = 1
	header, err := s.header(ctx, opts, questionTimeout, proof)
	return header.ResourceVersion, err
}

// storageFails reports whether the storage behind a server may be why it does
// not answer the history question.
func storageFails(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError
	}
	return errors.Is(err, errMute) || errors.Is(err, ErrStalled) || errors.Is(err, context.DeadlineExceeded)
}

// remembers reports whether the server has a version in memory, from where it
// serves watches while its storage does not answer. That it has not proves
// nothing: the memory of one server may be behind that of another.
func (s *server) remembers(ctx context.Context, version string) bool {
	opts := s.question()
	opts.ResourceVersion = "0"
	header, err := s.header(ctx, opts, memoryTimeout, false)
	known := header.ResourceVersion

	return err == nil && ordering.Ordered(known) && !ordering.Behind(known, version)
}

// question selects next to nothing of the objects that the informer may select.
// Permissions can be limited to objects by name, so a key that names its object
// asks with its own selector; every other permission covers the narrower
// selection.
func (s *server) question() metav1.ListOptions {
	o := s.listOptions()
	if s.informer.name == "" {
		o.FieldSelector = strings.TrimSuffix(nobody+","+o.FieldSelector, ",")
	}
	return o
}
