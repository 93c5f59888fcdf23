// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Ready implements informerpool.Source.
func (s *Server) Ready(ctx context.Context, _ types.NamespacedName) (informerpool.Epoch, error) {
	s.Mu.Lock()
	wait := s.NotReady
	s.Mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Epoch, nil
}

// Begin counts a request, and answers it if the server fails or blocks.
func (s *Server) Begin(ctx context.Context, verb string, r informerpool.Request) error {
	s.Mu.Lock()
	s.Requests[verb]++
	fail, block, refuse := s.Fail, s.Block, s.Refuse
	epoch := s.Epoch
	s.Mu.Unlock()
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
func (s *Server) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	verb := "list"
	if r.MetadataOnly {
		verb = "audit"
	}
	if err := s.Begin(ctx, verb, r); err != nil {
		return nil, err
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	match := Matcher(r.Key)
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
	keys := slices.SortedFunc(maps.Keys(objects),
		func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	keys = slices.DeleteFunc(keys,
		func(k types.NamespacedName) bool { return k.String() <= after || !match(objects[k]) })
	next := ""
	if limit := int(r.Options.Limit); limit > 0 && len(keys) > limit {
		keys = keys[:limit]
		next = fmt.Sprint(rv, " ", keys[limit-1])
	}
	items := make([]string, 0, len(keys))
	for _, k := range keys {
		items = append(items, string(objects[k].JSON()))
	}
	doc := fmt.Appendf(nil,
		`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d","continue":%q},`+
			`"items":[%s]}`,
		rv, next, strings.Join(items, ","))
	if s.CutAfter > 0 && len(doc) > s.CutAfter {
		return io.NopCloser(io.MultiReader(bytes.NewReader(doc[:s.CutAfter]), errReader{io.ErrUnexpectedEOF})), nil
	}
	return io.NopCloser(bytes.NewReader(doc)), nil
}

// keep takes a snapshot of an earlier moment.
func (s *Server) keep(version string) error {
	at, err := strconv.ParseUint(version, 10, 64)
	if err != nil || s.Inexact {
		return apierrors.NewBadRequest("resourceVersion")
	}
	if at < s.Compacted {
		return apierrors.NewResourceExpired("too old")
	}
	objects := maps.Clone(s.Objects)
	for _, e := range slices.Backward(s.Log) {
		key := types.NamespacedName{Namespace: e.Object.Namespace, Name: e.Object.Name}
		switch {
		case e.Version <= at:
		case e.Frame == "ADDED":
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
func (s *Server) snapshot(token string) (rv uint64, after string, err error) {
	if token == "" {
		rv = s.Version - s.Lag
		if s.Lag > 0 {
			return rv, "", s.keep(strconv.FormatUint(rv, 10))
		}
		s.snapshots[rv] = maps.Clone(s.Objects)
		return rv, "", nil
	}
	if _, err := fmt.Sscan(token, &rv, &after); err != nil {
		return 0, "", apierrors.NewBadRequest("continue")
	}
	if rv < s.Compacted || s.snapshots[rv] == nil {
		return 0, "", apierrors.NewResourceExpired("continue token expired")
	}
	return rv, after, nil
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// Watch implements informerpool.Source.
func (s *Server) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	initial := r.Options.SendInitialEvents != nil
	guard := strings.HasPrefix(r.Options.FieldSelector, "metadata.name=fleetcache-history")
	verb := "watch"
	switch {
	case guard:
		verb = "guard"
	case initial:
		verb = "stream"
	}
	if err := s.Begin(ctx, verb, r); err != nil {
		return nil, err
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if initial && s.NoStream {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	w := &Watch{
		Ctx:    ctx,
		Server: s,
		Key:    r.Key,
		Match:  Matcher(r.Key),
		News:   make(chan struct{}, 1),
	}
	if guard {
		w.Push(BookmarkFrame(s.Version, true))
		return w, nil
	}
	if initial {
		rv, _, err := s.snapshot("")
		if err != nil {
			return nil, err
		}
		for _, o := range s.snapshots[rv] {
			if w.Match(o) {
				w.Push(Frame("ADDED", o.JSON()))
			}
		}
		w.Push(BookmarkFrame(rv, true))
	} else {
		from, err := strconv.ParseUint(r.Options.ResourceVersion, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest("resourceVersion")
		}
		if from < s.Compacted {
			return nil, apierrors.NewResourceExpired("too old resource version")
		}
		w.From = from
		for _, e := range s.Log {
			w.offer(e)
		}
	}
	s.Watchers[w] = struct{}{}
	if s.Accepted != nil {
		s.Accepted(verb, w)
	}
	return w, nil
}

// Matcher returns a function that reports whether a key selects an object.
func Matcher(k informerpool.Key) func(Object) bool {
	selector, err := labels.Parse(k.LabelSelector)
	if err != nil {
		panic(err)
	}
	named := fields.ParseSelectorOrDie(k.FieldSelector)
	return func(o Object) bool {
		return (k.Namespace == "" || o.Namespace == k.Namespace) && selector.Matches(labels.Set(o.Labels)) &&
			named.Matches(fields.Set{"metadata.namespace": o.Namespace, "metadata.name": o.Name})
	}
}
