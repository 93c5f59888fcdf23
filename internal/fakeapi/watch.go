// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// bookmarkEvery is how often a watch gets a bookmark, as in kube-apiserver.
const bookmarkEvery = time.Minute

// stream is one watch.
type stream struct {
	*exchange

	which     selection
	form      form
	bookmarks bool
	lag       time.Duration // of the server that serves it
	since     time.Time
	cancel    context.CancelCauseFunc

	// Guarded by the server's lock.
	reached int64 // the version up to which changes were sent
	over    bool  // nothing more is sent
	nudges  int   // how many of the table's nudges were handled
	again   []change
}

// watch sends changes until the client disconnects, the time is up or the watch
// is cut.
func (x *exchange) watch() error {
	k := x.table.kind
	which, err := x.selection()
	if err == nil && !k.Overlooks {
		err = x.checkStream()
	}
	if err != nil {
		return err
	}
	from, err := versionOf(x.q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	st := &stream{
		exchange:  x,
		which:     which,
		form:      x.form(),
		bookmarks: x.q.Get("allowWatchBookmarks") == "true" && !k.NoBookmarks,
		lag:       x.lateness(),
		cancel:    cancel,
	}
	streamed := x.req.Stream && !k.Overlooks
	if streamed && !pause(ctx, st.lag) {
		return nil // a lagging server waits until it has caught up before it begins
	}
	first := st.begin(from, streamed)
	defer st.end()
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(http.StatusOK)
	st.run(ctx, first)
	return nil
}

func (x *exchange) checkStream() error {
	match := x.q.Get("resourceVersionMatch")
	bad := func(path, message string) error {
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "",
			field.ErrorList{field.Forbidden(field.NewPath(path), message)})
	}
	switch {
	case x.req.Stream && match != string(metav1.ResourceVersionMatchNotOlderThan):
		return bad("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	case x.req.Stream && x.q.Get("allowWatchBookmarks") != "true":
		return bad("sendInitialEvents", "sendInitialEvents requires allowWatchBookmarks")
	case !x.req.Stream && match != "":
		return bad("resourceVersionMatch",
			"resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
	case x.q.Has("sendInitialEvents"):
		return x.refuseStream()
	}

	return nil
}

// begin registers the stream and returns its first frames.
func (st *stream) begin(from int64, initial bool) []byte {
	st.mu.Lock()
	defer st.mu.Unlock()

	var out bytes.Buffer
	view := st.view()
	rv := st.rv
	if view != nil {
		rv = view.rv
	}
	st.nudges = st.table.nudges
	switch {
	case initial && from > st.rv:
		writeFrame(&out, "ERROR", marshal(statusOf(tooLarge(from, st.rv))))
		st.over = true
	case initial || from == 0 || st.table.kind.Repeats:
		objects := st.table.objects
		if view != nil {
			objects = view.objects
		}
		st.initial(&out, objects)
		if initial {
			st.bookmark(&out, rv, true)
		}
		st.reached = rv
	case from < st.oldest():
		expired := apierrors.NewResourceExpired(expiredMessage(from, st.oldest()))
		writeFrame(&out, "ERROR", marshal(statusOf(expired)))
		st.over = true
	default:
		st.reached = from
	}

	st.since = time.Now()
	st.streams = append(st.streams, st)

	return out.Bytes()
}

// initial writes the existing objects.
func (st *stream) initial(out *bytes.Buffer, objects map[objectKey]*version) {
	var keys []objectKey
	for key, v := range objects {
		if st.which.matches(v) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	for _, key := range keys {
		writeFrame(out, "ADDED", st.form.of(objects[key]))
	}
}

// view returns what the stream shows, or nil for the present state.
func (st *stream) view() *view {
	if rv, past := st.shown(); past && st.table.frozen == nil {
		return &view{rv: rv, objects: st.table.at(rv)}
	}
	if st.req.Admin {
		return nil
	}
	return st.table.frozen
}

// shown returns the version that the stream shows, and whether that is a past
// one.
func (st *stream) shown() (rv int64, past bool) {
	switch {
	case st.req.Admin:
	case st.table.frozen != nil:
		return st.table.frozen.rv, true
	case st.lag > 0:
		rv = st.versionBefore(st.lag)
		return rv, rv < st.rv
	}

	return st.rv, false
}

// oldest returns the oldest version from which a stream may resume.
func (st *stream) oldest() int64 {
	if st.req.Admin {
		return st.expired
	}
	return max(st.expired, st.table.expired)
}

func (st *stream) end() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.streams = slices.DeleteFunc(st.streams, func(x *stream) bool { return x == st })
}

// run writes frames until something ends the watch.
func (st *stream) run(ctx context.Context, frames []byte) {
	tick := time.NewTicker(bookmarkEvery)
	defer tick.Stop()
	var timeUp <-chan time.Time
	if seconds, _ := strconv.ParseInt(st.q.Get("timeoutSeconds"), 10, 64); seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		timeUp = timer.C
	}
	due := false
	for {
		more, news, gone, silent := st.collect(due)
		due = false
		frames = append(frames, more...)
		if len(frames) > 0 && !silent {
			if _, err := st.w.Write(frames); err != nil {
				return
			}
			frames = nil
		}

		if f, ok := st.w.(http.Flusher); ok {
			f.Flush()
		}
		if gone || ctx.Err() != nil {
			return
		}
		var later <-chan time.Time
		if st.lag > 0 {
			later = time.After(st.lag / 4)
		}

		select {
		case <-later:
		case <-news:
		case <-tick.C:
			due = true
		case <-timeUp:
			return
		case <-ctx.Done():
			return
		}
	}
}

// collect returns the frames that are due, and a channel that is closed when
// there are more. gone reports that no more will come, because the kind is gone
// or was replaced by that of another cluster. silent reports that nothing may
// be sent, not even frames collected before.
func (st *stream) collect(bookmark bool) (frames []byte, news <-chan struct{}, gone, silent bool) {
	t := st.table
	st.mu.Lock()
	defer st.mu.Unlock()

	switch {
	case t.silent && !st.req.Admin:
		return nil, t.news, t.gone, true
	case st.over:
		return nil, nil, true, false
	}

	var out bytes.Buffer
	var limit int64
	rv, past := st.shown()
	if st.held != nil && st.held(st.req) {
		rv, past = st.reached, true
	}
	if past {
		limit = rv
	}
	for _, c := range st.again {
		st.change(&out, c)
	}
	st.again = nil
	for _, c := range t.after(st.reached, limit) {
		if !c.unsaid || st.req.Admin {
			st.change(&out, c)
		}
		st.reached = c.rv
	}

	if st.nudges != t.nudges {
		st.nudges, bookmark = t.nudges, true
	}
	if bookmark && st.bookmarks && rv >= st.reached {
		st.bookmark(&out, rv, false)
		st.reached = rv
	}

	return out.Bytes(), t.news, t.gone, false
}

// change writes a change from the point of view of the selection.
func (st *stream) change(out *bytes.Buffer, c change) {
	is, was := st.which.matches(c.after), st.which.matches(c.before)
	switch {
	case is && was:
		writeFrame(out, "MODIFIED", st.form.of(c.after))
	case is:
		writeFrame(out, "ADDED", st.form.of(c.after))
	case was && st.table.kind.StaleDeletes:
		writeFrame(out, "DELETED", st.form.of(c.before))
	case was && c.last != nil:
		writeFrame(out, "DELETED", st.form.of(c.last))
	case was:
		// The object still exists but is no longer selected: send its last
		// selected state with the version of the change.
		writeFrame(out, "DELETED", st.form.of(newVersion(c.rv, c.before.copy().Object)))
	}
}

func (st *stream) bookmark(out *bytes.Buffer, rv int64, end bool) {
	meta := map[string]any{"resourceVersion": st.table.kind.listVersion(rv), "creationTimestamp": nil}
	if end {
		meta["annotations"] = map[string]any{metav1.InitialEventsAnnotationKey: "true"}
	}
	writeFrame(out, "BOOKMARK",
		marshal(map[string]any{"kind": st.form.kind, "apiVersion": st.form.apiVersion, "metadata": meta}))
}

func writeFrame(out *bytes.Buffer, kind string, object []byte) {
	out.WriteString(`{"type":"` + kind + `","object":`)
	out.Write(object)
	out.WriteString("}\n")
}

// Bookmark sends a bookmark to every watch now.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.nudges++
		t.wake()
	}
}

// Watched returns the requests of the open watches, except those of the
// administrator.
func (s *Server) Watched() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()

	var out []Request
	for _, st := range s.streams {
		if !st.req.Admin {
			out = append(out, *st.req)
		}
	}
	return out
}

// OpenWatch describes an open watch.
type OpenWatch struct {
	Request

	// Since is when the watch began.
	Since time.Time
}

// Open returns the open watches, except those of the administrator, in the
// order in which they began.
func (s *Server) Open() []OpenWatch {
	s.mu.Lock()
	defer s.mu.Unlock()

	var out []OpenWatch
	for _, st := range s.streams {
		if !st.req.Admin {
			out = append(out, OpenWatch{Request: *st.req, Since: st.since})
		}
	}
	return out
}

// Silence stops matching watches from sending anything at all, or ends that.
// Lists, reads and writes are not affected.
func (s *Server) Silence(match func(*Kind) bool, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		if match(t.kind) {
			t.silent = silent
			t.wake()
		}
	}
}

// Silent reports whether watches of a matching kind are silenced.
func (s *Server) Silent(match func(*Kind) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		if match(t.kind) && t.silent {
			return true
		}
	}
	return false
}

// Freeze makes matching watches show nothing newer than the present state.
// Lists, reads and writes are not affected.
func (s *Server) Freeze(match func(*Kind) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		if match(t.kind) && t.frozen == nil {
			t.frozen = &view{rv: s.rv, objects: t.at(s.rv)}
		}
	}
}

// Shown returns the resourceVersion that watches of a matching kind show: the
// newest, unless the kind is frozen.
func (s *Server) Shown(match func(*Kind) bool) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		if match(t.kind) && t.frozen != nil {
			return t.frozen.rv
		}
	}
	return s.rv
}

// Thaw ends Freeze. If skip is true, watches get 410 and have to start over, so
// that they see the current state but never the changes in between. Otherwise
// they get all changes, in order.
func (s *Server) Thaw(match func(*Kind) bool, skip bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		if !match(t.kind) || t.frozen == nil {
			continue
		}
		if skip {
			for _, st := range s.streams {
				if st.table == t && !st.req.Admin {
					st.over = true
				}
			}
			t.expired = s.rv
		}

		t.frozen = nil
		t.wake()
	}
}
