// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

const (
	// questionTimeout bounds how long a server may be silent after the history
	// question.
	questionTimeout = 30 * time.Second
	// maxUnanswered is how long a busy server may leave the history question
	// unanswered before a list is tried.
	maxUnanswered = 30 * time.Second
	// nobody selects no object: Kubernetes names are no longer than 253
	// characters, and any shorter name could be that of a resource's own
	// object.
	nobody = "metadata.name=fleetcache-history"
)

// errMute indicates that a stream carried nothing although the same server has
// answered such a question before.
var errMute = errors.New("streams are silent")

// guard asks the history question: does the server's history reach the version
// that the informer has seen? A server whose etcd was restored from an older
// snapshot accepts a resourceVersion from the future and then is silent until
// its own history gets there, in practice for ever.
func (r *reflector) guard(ctx context.Context) error {
	server, err := r.currentVersion(ctx)
	if err != nil {
		return err
	}
	r.failures.unanswered = time.Time{}
	if ordering.Behind(server, r.at.resume) {
		return fmt.Errorf("%s: %w (server is at %s, cache at %s)", r.informer.key, ErrHistory, server, r.at.resume)
	}
	return nil
}

// busy reports whether a response concerns the server's current condition
// rather than the request.
func busy(s metav1.Status) bool {
	return s.Code == 401 || s.Code == 408 || s.Code == 429 || s.Code >= 500
}

// currentVersion asks the server for the newest resourceVersion of the
// resource. If lists are streamed, it requests the stream of a name that does
// not exist: the bookmark that ends it is the answer, and the request is no
// LIST.
func (r *reflector) currentVersion(ctx context.Context) (string, error) {
	if r.paged() {
		rv, err := r.pagedVersion(ctx, true)
		if apierrors.IsTooManyRequests(err) {
			return r.busyVersion(ctx, err)
		}
		return rv, err
	}

	rv, err := r.streamedVersion(ctx)
	if errors.Is(err, errMute) {
		// Lists may work where streams are silent. Their answer concerns the
		// history; it does not show that a watch would carry changes.
		return r.pagedVersion(ctx, false)
	}
	if !cannotStream(err) {
		return rv, err
	}
	// The server is not the one that the cache was listed from: it was upgraded
	// or downgraded, or there are several.
	rv, err = r.pagedVersion(ctx, true)
	if err == nil {
		r.informer.cluster.pages(r.informer.key)
	}

	return rv, err
}

// busyVersion asks by a stream after a list was refused because the server is
// too busy: the server may have time for watches, such as the one that is to be
// resumed. It asks only once in a row, and not where streams are known not to
// work.
func (r *reflector) busyVersion(ctx context.Context, refused error) (string, error) {
	if !r.failures.unanswered.IsZero() || r.informer.cluster.paged(r.informer.key) {
		return "", refused
	}
	rv, err := r.streamedVersion(ctx)
	switch {
	case err == nil:
		return rv, nil
	case cannotStream(err):
		r.informer.cluster.pages(r.informer.key)
	case errors.Is(err, ErrEpochChanged):
		return "", err
	}

	return "", refused
}

func (r *reflector) streamedVersion(ctx context.Context) (string, error) {
	opts := streamOptions(r.question())
	// The server should end it before the informer does.
	opts.TimeoutSeconds = new(int64(questionTimeout / time.Second * 2 / 3))
	s, err := r.open(ctx, opts, questionTimeout)
	if err != nil {
		return "", err
	}
	defer s.close()

	for {
		frame, err := s.next()
		silent := errors.Is(err, io.EOF) || errors.Is(err, ErrStalled)
		if silent && !r.server.ends {
			return "", errNoStream // it was no streamed list, or one without an end
		}
		if silent {
			return "", errMute
		}
		if err != nil {
			return "", err
		}
		if end, it, err := initialEventsEnd(frame); end || err != nil {
			r.server.ends = r.server.ends || end
			return it.ResourceVersion, err
		}
	}
}

// pagedVersion asks by a list of one object. proof reports whether a response
// counts as a sign of life.
func (r *reflector) pagedVersion(ctx context.Context, proof bool) (string, error) {
	opts := metav1.ListOptions{}
	if namesOne(r.informer.key) {
		opts = r.listOptions()
	}
	opts.Limit = 1
	page, err := r.openPage(ctx, opts, questionTimeout)
	if err != nil {
		return "", err
	}
	defer page.close()
	page.unproven = !proof
	for err == nil {
		err = page.next()
	}
	if !errors.Is(err, io.EOF) {
		return "", err
	}
	return page.header().ResourceVersion, nil
}

// question selects next to nothing of the objects that the informer may select.
// Permissions can be limited to objects by name, so a key that names its object
// asks with its own selector; every other permission covers the narrower
// selection.
func (r *reflector) question() metav1.ListOptions {
	o := r.listOptions()
	if !namesOne(r.informer.key) {
		o.FieldSelector = strings.TrimSuffix(nobody+","+o.FieldSelector, ",")
	}
	return o
}

// namesOne reports whether a key selects one object by its name.
func namesOne(k Key) bool {
	selector, err := fields.ParseSelector(k.FieldSelector)
	if err != nil {
		return false
	}
	_, exact := selector.RequiresExactMatch("metadata.name")
	return exact
}

// rolledBack reports that the server's history is not the store's.
func (r *reflector) rolledBack(cause error) {
	r.informer.count(countRollbacks)
	r.options.Logger.Info("History of the server is another one",
		"informer", r.informer.key.String(), "error", cause.Error())
	if r.options.OnRollback != nil {
		_ = r.informer.pool.calls.Apart("OnRollback", &r.informer.key, func() error {
			r.options.OnRollback(r.informer.key)
			return nil
		})
	}
}

// follows reports whether the store shows a history.
func (i *informer) follows(epoch Epoch, number int) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.mu.synced && i.mu.epoch == epoch && i.mu.history == number
}
