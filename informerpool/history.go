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
func (f *feed) guard(ctx context.Context) error {
	server, err := f.currentVersion(ctx)
	if err != nil {
		return err
	}
	f.unanswered = time.Time{}
	if behind(server, f.resume) {
		return fmt.Errorf("%s: %w (server is at %s, cache at %s)", f.key, ErrHistory, server, f.resume)
	}
	return nil
}

// listsInstead reports whether a failed history question is to be answered by a
// list. The question is the informer's own, and its user was not required to
// have the permission for it. So no refusal of the question, whatever its code,
// keeps the informer from a list, whose own refusal is the one to report to the
// user. A server that is merely busy is asked again for a while, since it would
// most likely have no time for a list either. A connection that breaks or is
// silent proves nothing.
func (f *feed) listsInstead(err error) bool {
	if errors.Is(err, ErrHistory) || errors.Is(err, ErrEpochChanged) {
		return false
	}
	var status apierrors.APIStatus
	answered := errors.As(err, &status)
	switch {
	case answered && !busy(status.Status()), cannotStream(err):
		return true
	case answered && f.unanswered.IsZero():
		f.unanswered = time.Now()
	}

	return answered && time.Since(f.unanswered) >= maxUnanswered
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
func (f *feed) currentVersion(ctx context.Context) (string, error) {
	if f.paged() {
		rv, err := f.pagedVersion(ctx, true)
		if apierrors.IsTooManyRequests(err) {
			return f.busyVersion(ctx, err)
		}
		return rv, err
	}

	rv, err := f.streamedVersion(ctx)
	if errors.Is(err, errMute) {
		// Lists may work where streams are silent. Their answer concerns the
		// history; it does not show that a watch would carry changes.
		return f.pagedVersion(ctx, false)
	}
	if !cannotStream(err) {
		return rv, err
	}
	// The server is not the one that the cache was listed from: it was upgraded
	// or downgraded, or there are several.
	rv, err = f.pagedVersion(ctx, true)
	if err == nil {
		f.account.pages(f.key)
	}

	return rv, err
}

// busyVersion asks by a stream after a list was refused because the server is
// too busy: the server may have time for watches, such as the one that is to be
// resumed. It asks only once in a row, and not where streams are known not to
// work.
func (f *feed) busyVersion(ctx context.Context, refused error) (string, error) {
	if !f.unanswered.IsZero() || f.account.paged(f.key) {
		return "", refused
	}
	rv, err := f.streamedVersion(ctx)
	switch {
	case err == nil:
		return rv, nil
	case cannotStream(err):
		f.account.pages(f.key)
	case errors.Is(err, ErrEpochChanged):
		return "", err
	}

	return "", refused
}

func (f *feed) streamedVersion(ctx context.Context) (string, error) {
	opts := streamOptions(f.question())
	opts.TimeoutSeconds = new(int64(questionTimeout / time.Second * 2 / 3)) // the server should end it before the informer does
	s, err := f.open(ctx, opts, questionTimeout)
	if err != nil {
		return "", err
	}
	defer s.close()

	for {
		frame, err := s.next()
		silent := errors.Is(err, io.EOF) || errors.Is(err, ErrStalled)
		if silent && !f.ends {
			return "", errNoStream // it was no streamed list, or one without an end
		}
		if silent {
			return "", errMute
		}
		if err != nil {
			return "", err
		}
		if end, it, err := initialEventsEnd(frame); end || err != nil {
			f.ends = f.ends || end
			return it.ResourceVersion, err
		}
	}
}

// pagedVersion asks by a list of one object. proof reports whether a response
// counts as a sign of life.
func (f *feed) pagedVersion(ctx context.Context, proof bool) (string, error) {
	opts := metav1.ListOptions{}
	if namesOne(f.key) {
		opts = f.listOptions()
	}
	opts.Limit = 1
	page, err := f.openPage(ctx, opts, questionTimeout)
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
func (f *feed) question() metav1.ListOptions {
	o := f.listOptions()
	if !namesOne(f.key) {
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
func (f *feed) rolledBack(cause error) {
	f.counters.rollbacks.inc()
	f.options.Logger.Info("History of the server is another one", "informer", f.key.String(), "error", cause.Error())
	if f.options.OnRollback != nil {
		_ = f.pool.callApart("OnRollback", f.key, func() error {
			f.options.OnRollback(f.key)
			return nil
		})
	}
}
