// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// modelServer is an in-memory API server of one resource: it has a log of
// versions, paged lists, streamed lists, watches that resume, bookmarks and
// compaction. It works inside a synctest bubble.
type modelServer struct {
	mu        sync.Mutex // protects the fields below
	epoch     informerpool.Epoch
	rv        uint64
	uids      int
	objects   map[types.NamespacedName]modelObject
	log       []modelEvent
	snapshots map[uint64]map[types.NamespacedName]modelObject
	compacted uint64 // watches from before fail with 410
	watchers  map[*modelWatch]struct{}
	fail      func(verb string) error // answers in place of the server
	refuse    func(k informerpool.Key) error
	block     chan struct{}  // requests wait for it to close
	notReady  chan struct{}  // Ready waits for it to close
	noStream  bool           // an old server
	requests  map[string]int // by verb; "stream" is a streamed list, "guard" the history question
	cutAfter  int            // bytes until a list breaks; 0 is never
	deaf      bool           // watches do not receive changes
	inexact   bool           // no list of an earlier moment
	late      time.Duration  // how much later than lists watches show a change

	accepted func(verb string, w *modelWatch) // called with a stream that the server begins
}

type modelObject struct {
	namespace, name, uid string
	rv                   uint64
	value                int
	labels               map[string]string
}

type modelEvent struct {
	rv     uint64
	frame  string
	object modelObject
	before modelObject
}

func newModelServer() *modelServer {
	return &modelServer{
		epoch: "a", rv: 100, compacted: 100, objects: map[types.NamespacedName]modelObject{},
		watchers: map[*modelWatch]struct{}{}, requests: map[string]int{}, snapshots: map[uint64]map[types.NamespacedName]modelObject{},
	}
}

func (o modelObject) json() []byte {
	m := map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{
			"namespace": o.namespace, "name": o.name, "uid": o.uid, "resourceVersion": strconv.FormatUint(o.rv, 10), "labels": o.labels,
		},
		"spec": map[string]any{"value": o.value},
	}
	if owner := o.labels["owner"]; owner != "" {
		m["metadata"].(map[string]any)["ownerReferences"] = []map[string]any{
			{"apiVersion": "example.com/v1", "kind": "Widget", "name": owner, "uid": owner},
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func frame(kind string, object []byte) []byte {
	return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, object)
}

// put creates or updates an object, and returns its version.
func (s *modelServer) put(namespace, name string, value int, labels ...string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	key := types.NamespacedName{Namespace: namespace, Name: name}
	o, exists := s.objects[key]
	event := modelEvent{rv: s.rv, frame: "MODIFIED", before: o}
	if !exists {
		s.uids++
		event.frame = "ADDED"
		o = modelObject{namespace: namespace, name: name, uid: fmt.Sprintf("%s-%d", s.epoch, s.uids)}
	}
	o.rv, o.value = s.rv, value
	if len(labels) > 0 {
		o.labels = map[string]string{}
		for _, l := range labels {
			k, v, _ := strings.Cut(l, "=")
			o.labels[k] = v
		}
	}
	s.objects[key] = o
	event.object = o
	s.emit(event)
	return s.rv
}

func (s *modelServer) delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	o, exists := s.objects[key]
	if !exists {
		return
	}
	s.rv++
	delete(s.objects, key)
	before := o
	o.rv = s.rv
	s.emit(modelEvent{rv: s.rv, frame: "DELETED", object: o, before: before})
}

func (s *modelServer) emit(e modelEvent) {
	s.log = append(s.log, e)
	if s.deaf {
		return
	}
	if s.late > 0 {
		time.AfterFunc(s.late, func() { s.tell(e) })
		return
	}
	for w := range s.watchers {
		w.offer(e)
	}
}

// tell sends watches the changes up to one that is late, in order.
func (s *modelServer) tell(until modelEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		for _, e := range s.log {
			if e.rv <= until.rv && e.rv > w.told {
				w.offer(e)
			}
		}
	}
}

// compact drops the history, so that resuming a watch fails with 410.
func (s *modelServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted, s.log = s.rv, nil
}

// cut ends every watch with an error.
func (s *modelServer) cut(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		w.end(err)
	}
	clear(s.watchers)
}

// bookmark sends every watch a bookmark.
func (s *modelServer) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		if s.rv > w.from {
			w.push(bookmarkFrame(s.rv, false))
		}
	}
}

// become makes the server another cluster, with other objects.
func (s *modelServer) become(epoch informerpool.Epoch, rv uint64) {
	s.mu.Lock()
	s.epoch, s.rv, s.compacted, s.log = epoch, rv, 0, nil
	clear(s.objects)
	clear(s.snapshots)
	s.mu.Unlock()
	s.cut(io.ErrUnexpectedEOF)
}

func (s *modelServer) set(change func(*modelServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *modelServer) count(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[verb]
}

// state is every object's value and version, as a list would show them.
func (s *modelServer) state(match func(modelObject) bool) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for k, o := range s.objects {
		if match == nil || match(o) {
			out[k.String()] = fmt.Sprintf("%s@%d", o.uid, o.rv)
		}
	}
	return out
}

func bookmarkFrame(rv uint64, end bool) []byte {
	annotations := ""
	if end {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	return frame("BOOKMARK", fmt.Appendf(nil, `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d"%s}}`, rv, annotations))
}

// Ready implements informerpool.Source.
func (s *modelServer) Ready(ctx context.Context, _ types.NamespacedName) (informerpool.Epoch, error) {
	s.mu.Lock()
	wait := s.notReady
	s.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch, nil
}

// begin counts a request, and answers it if the server fails or blocks.
func (s *modelServer) begin(ctx context.Context, verb string, r informerpool.Request) error {
	s.mu.Lock()
	s.requests[verb]++
	fail, block, refuse := s.fail, s.block, s.refuse
	epoch := s.epoch
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if fail != nil {
		if err := fail(verb); err != nil {
			return err
		}
	}
	if refuse != nil {
		if err := refuse(r.Key); err != nil {
			return err
		}
	}
	if epoch != r.Epoch {
		return informerpool.ErrEpochChanged
	}
	return nil
}

// List implements informerpool.Source.
func (s *modelServer) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	verb := "list"
	if r.MetadataOnly {
		verb = "audit"
	}
	if err := s.begin(ctx, verb, r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	match := matcher(r.Key)
	if r.Options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		if err := s.keep(r.Options.ResourceVersion); err != nil {
			return nil, err
		}
		r.Options.Continue = r.Options.ResourceVersion + " !"
	}
	rv, after, err := s.snapshot(r.Options.Continue)
	if err != nil {
		return nil, err
	}
	objects := s.snapshots[rv]
	keys := slices.SortedFunc(maps.Keys(objects), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	keys = slices.DeleteFunc(keys, func(k types.NamespacedName) bool { return k.String() <= after || !match(objects[k]) })
	next := ""
	if limit := int(r.Options.Limit); limit > 0 && len(keys) > limit {
		keys = keys[:limit]
		next = fmt.Sprint(rv, " ", keys[limit-1])
	}
	items := make([]string, 0, len(keys))
	for _, k := range keys {
		items = append(items, string(objects[k].json()))
	}
	doc := fmt.Appendf(nil, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`,
		rv, next, strings.Join(items, ","))
	if s.cutAfter > 0 && len(doc) > s.cutAfter {
		return io.NopCloser(io.MultiReader(bytes.NewReader(doc[:s.cutAfter]), errReader{io.ErrUnexpectedEOF})), nil
	}
	return io.NopCloser(bytes.NewReader(doc)), nil
}

// keep takes a snapshot of an earlier moment.
func (s *modelServer) keep(version string) error {
	at, err := strconv.ParseUint(version, 10, 64)
	if err != nil || s.inexact {
		return apierrors.NewBadRequest("resourceVersion")
	}
	if at < s.compacted {
		return apierrors.NewResourceExpired("too old")
	}
	objects := maps.Clone(s.objects)
	for _, e := range slices.Backward(s.log) {
		key := types.NamespacedName{Namespace: e.object.namespace, Name: e.object.name}
		switch {
		case e.rv <= at:
		case e.frame == "ADDED":
			delete(objects, key)
		default:
			objects[key] = e.before
		}
	}
	s.snapshots[at] = objects
	return nil
}

// snapshot keeps the state that the pages of one list show, as a server's
// history does.
func (s *modelServer) snapshot(token string) (rv uint64, after string, err error) {
	if token == "" {
		s.snapshots[s.rv] = maps.Clone(s.objects)
		return s.rv, "", nil
	}
	if _, err := fmt.Sscan(token, &rv, &after); err != nil {
		return 0, "", apierrors.NewBadRequest("continue")
	}
	if rv < s.compacted || s.snapshots[rv] == nil {
		return 0, "", apierrors.NewResourceExpired("continue token expired")
	}
	return rv, after, nil
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// Watch implements informerpool.Source.
func (s *modelServer) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	initial := r.Options.SendInitialEvents != nil
	guard := strings.HasPrefix(r.Options.FieldSelector, "metadata.name=fleetcache-history")
	verb := "watch"
	switch {
	case guard:
		verb = "guard"
	case initial:
		verb = "stream"
	}
	if err := s.begin(ctx, verb, r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if initial && s.noStream {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	w := &modelWatch{ctx: ctx, server: s, key: r.Key, match: matcher(r.Key), news: make(chan struct{}, 1)}
	if guard {
		w.push(bookmarkFrame(s.rv, true))
		return w, nil
	}
	if initial {
		for _, o := range s.objects {
			if w.match(o) {
				w.push(frame("ADDED", o.json()))
			}
		}
		w.push(bookmarkFrame(s.rv, true))
	} else {
		from, err := strconv.ParseUint(r.Options.ResourceVersion, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest("resourceVersion")
		}
		if from < s.compacted {
			return nil, apierrors.NewResourceExpired("too old resource version")
		}
		w.from = from
		for _, e := range s.log {
			w.offer(e)
		}
	}
	s.watchers[w] = struct{}{}
	if s.accepted != nil {
		s.accepted(verb, w)
	}
	return w, nil
}

func matcher(k informerpool.Key) func(modelObject) bool {
	selector, err := labels.Parse(k.LabelSelector)
	if err != nil {
		panic(err)
	}
	return func(o modelObject) bool {
		return (k.Namespace == "" || o.namespace == k.Namespace) && selector.Matches(labels.Set(o.labels))
	}
}

// modelWatch is the body of one watch.
type modelWatch struct {
	ctx    context.Context
	server *modelServer
	key    informerpool.Key
	match  func(modelObject) bool
	news   chan struct{} // one slot
	from   uint64
	told   uint64 // the last event offered; the server's lock protects it

	mu   sync.Mutex // protects the fields below
	data []byte
	err  error
}

// offer sends an event as the selector sees it. It skips events from before the
// watch's start, even if the start lies in the future: that is how a server
// treats a client that has seen more than its restored history.
func (w *modelWatch) offer(e modelEvent) {
	if e.rv <= w.from {
		return
	}
	w.told = e.rv
	is, was := e.frame != "DELETED" && w.match(e.object), e.frame != "ADDED" && w.match(e.before)
	switch {
	case is && was:
		w.push(frame("MODIFIED", e.object.json()))
	case is:
		w.push(frame("ADDED", e.object.json()))
	case was:
		gone := e.before
		gone.rv = e.rv
		w.push(frame("DELETED", gone.json()))
	}
}

func (w *modelWatch) push(b []byte) {
	w.mu.Lock()
	w.data = append(w.data, b...)
	w.mu.Unlock()
	w.wake()
}

func (w *modelWatch) end(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.wake()
}

func (w *modelWatch) wake() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// Read implements io.Reader.
func (w *modelWatch) Read(p []byte) (int, error) {
	for {
		w.mu.Lock()
		n := copy(p, w.data)
		w.data = w.data[n:]
		err := w.err
		w.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-w.news:
		case <-w.ctx.Done():
			return 0, w.ctx.Err()
		}
	}
}

// Close implements io.Closer.
func (w *modelWatch) Close() error {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	delete(w.server.watchers, w)
	return nil
}

var errUnreachable = errors.New("dial tcp: connection refused")

func hang() chan struct{} { return make(chan struct{}) }

const long = time.Hour
