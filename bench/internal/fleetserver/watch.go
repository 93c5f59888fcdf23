// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stream is one watch.
type stream struct {
	table *table
	which selection
	out   *frames
	// reached is the version up to which the client has everything.
	reached   int64
	bookmarks bool
}

// watch serves a WATCH until the client ends it, the time is up or the server
// goes down.
func (t *table) watch(w http.ResponseWriter, r *http.Request, which selection) error {
	q := r.URL.Query()
	streamed := q.Get("sendInitialEvents") == "true"
	if err := checkStream(q, streamed); err != nil {
		return err
	}
	from, given, err := versionOf(q)
	if err != nil {
		// kube-apiserver does not take it for the client's mistake here.
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusInternalServerError,
			Message: err.Error(),
		}}
	}
	s := &stream{
		table:     t,
		which:     which,
		out:       representationOf(r, t).frames(w),
		bookmarks: q.Get("allowWatchBookmarks") == "true",
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeoutOf(q))
	defer cancel()
	w.WriteHeader(http.StatusOK)
	if err := s.begin(from, given && from > 0, streamed); err != nil {
		return nil // the client has left, or the stream has ended with an error
	}
	if !which.none {
		t.cluster.fleet.counts.live.Add(1)
		defer t.cluster.fleet.counts.live.Add(-1)
	}
	s.follow(ctx)

	return nil
}

func checkStream(q url.Values, streamed bool) error {
	match := q.Get("resourceVersionMatch")
	forbidden := func(path, message string) error {
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "",
			field.ErrorList{field.Forbidden(field.NewPath(path), message)})
	}
	switch {
	case streamed && match != string(metav1.ResourceVersionMatchNotOlderThan):
		return forbidden("resourceVersionMatch",
			"sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	case !streamed && match != "" && q.Get("sendInitialEvents") == "":
		return forbidden("resourceVersionMatch",
			"resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
	}

	return nil
}

// errEnded indicates that the stream has ended with an error that the client
// has got.
var errEnded = fmt.Errorf("the stream has ended")

// begin sends what comes before the changes: everything there is, if the client
// resumes nowhere.
func (s *stream) begin(from int64, resumes, streamed bool) error {
	t, c := s.table, s.table.cluster
	c.mu.Lock()
	all, rv, oldest := t.all(), c.rv, c.oldest
	c.mu.Unlock()

	switch {
	case resumes && from > rv:
		return s.refuse(tooLarge(from, rv))
	case resumes && from < oldest && !streamed:
		return s.refuse(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, oldest)))
	case resumes && !streamed:
		s.reached = from
		return s.out.flush()
	}
	found, err := t.selected(s.which, all)
	if err != nil {
		return err
	}
	for _, o := range found {
		if err := s.send(watch.Added, o); err != nil {
			return err
		}
	}

	s.reached = rv
	if s.bookmarks { // also after what is no streamed list, but begins with what there is
		return s.bookmark(true)
	}
	return s.out.flush()
}

// refuse ends the stream with an error.
func (s *stream) refuse(err error) error {
	if err := s.out.write(watch.Error, statusOf(err)); err != nil {
		return err
	}
	if err := s.out.flush(); err != nil {
		return err
	}
	return errEnded
}

// follow sends changes and bookmarks.
func (s *stream) follow(ctx context.Context) {
	t, c := s.table, s.table.cluster
	timer := time.NewTimer(c.fleet.options.Bookmarks)
	defer timer.Stop()

	for {
		c.mu.Lock()
		changes, wake, rv := t.after(s.reached), t.wake, c.rv
		c.mu.Unlock()
		if err := s.changes(changes); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
			timer.Reset(c.fleet.options.Bookmarks)
			if len(changes) == 0 {
				s.reached = max(s.reached, rv) // there were no others up to rv
			}
			if s.bookmarks && s.bookmark(false) != nil {
				return
			}
		}
	}
}

func (s *stream) changes(changes []change) error {
	for _, x := range changes {
		o, err := s.table.render(x)
		if err != nil {
			return err
		}
		if !s.which.none && s.which.matches(o) {
			if err := s.send(watch.Modified, o); err != nil {
				return err
			}
		}
		s.reached = x.rv
	}
	if len(changes) == 0 {
		return nil
	}
	return s.out.flush()
}

func (s *stream) send(event watch.EventType, o client.Object) error {
	s.table.cluster.fleet.counts.objects.Add(1)
	return s.out.write(event, o)
}

// bookmark sends a bookmark; final reports that it ends the initial events.
func (s *stream) bookmark(final bool) error {
	o, err := newObject(s.table.kind.GVK)
	if err != nil {
		return err
	}
	o.SetResourceVersion(strconv.FormatInt(s.reached, 10))
	if final {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	if err := s.out.write(watch.Bookmark, o); err != nil {
		return err
	}
	return s.out.flush()
}
