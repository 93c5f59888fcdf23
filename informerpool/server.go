// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/internal/wire"
)

const (
	// questionTimeout bounds how long a server may be silent after the history
	// question.
	questionTimeout = 30 * time.Second
	// memoryTimeout is questionTimeout for an answer from memory, and
	// memoryPause the time between two such questions if the first one did not
	// help.
	memoryTimeout = 5 * time.Second
	memoryPause   = 2 * time.Minute
	// initialSilence bounds the silence within the initial objects of a
	// streamed list.
	initialSilence = 30 * time.Second
	// beginningSilence is the silence after which a stream that began with the
	// existing objects shows no more of them.
	beginningSilence = 10 * time.Second
	// maxRepeats bounds how often such a stream repeats objects.
	maxRepeats = 1000
	// maxChanges bounds how long it shows changes before its end, and
	// maxInitial how long it lasts.
	maxChanges = time.Minute
	maxInitial = 20 * time.Minute
	// fallbackAge is how long a missing capability is remembered. Servers are
	// upgraded, downgraded and replaced in place.
	fallbackAge = 10 * time.Minute
)

// server is the API server as one reflector sees it: the requests for the
// reflector's key, and what they have shown about the server.
//
// INVARIANT: only the reflector's goroutine uses its fields.
type server struct {
	abilities

	informer *informer
	epoch    Epoch     // that requests are made for
	answers  bool      // it has accepted a request of the attempt
	sent     time.Time // when the last request of the attempt was sent, or else when that began

	missed time.Time // when a list last said that the resource is missing; zero if it was served since
}

// abilities are what the reflector has learned about how its server lists and
// watches the resource.
type abilities struct {
	ends        bool      // it has ended a list that it streamed
	silent      bool      // its watches have carried nothing while nothing changed
	bookmarks   bool      // its watches carry bookmarks while nothing changes
	repeats     bool      // its watches begin with the objects that exist, whatever the version
	blank       bool      // the last of them began with none, and the cache had some
	unwatchable time.Time // until when it is not asked to watch, having refused once
	undated     bool      // its lists have no version
	bare        bool      // it has shown an object without a version; a list in pages shows whether it has any
	smaller     int       // how often the size of pages was halved
}

// cannotStream reports whether an error may mean that the server does not
// support streamed lists: older servers refuse the parameters, the oldest
// ignore them. If the error has another cause, the paged list that follows
// fails alike.
func cannotStream(err error) bool {
	if errors.Is(err, errNoStream) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout,
		http.StatusGone, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500 || code == http.StatusNotImplemented
	}
}

// maxUnstreamed is how many streamed lists in a row may fail inside a server
// before a paged one is tried.
const maxUnstreamed = 3

// paged reports whether lists are requested in pages.
func (s *server) paged() bool {
	return s.informer.pool.options.PagedLists || !s.watchable() || s.bare ||
		s.informer.cluster.pages(s.informer.key.Resource.Group)
}

// pages records that the server does not stream lists of the resource's group.
func (s *server) pages() {
	s.informer.cluster.paged.Load().Set(s.informer.key.Resource.Group, nil, fallbackAge)
}

// watchable reports whether watches of the resource are requested.
func (a *abilities) watchable() bool { return time.Now().After(a.unwatchable) }

// recounts reports whether the resource's versions went back although the
// cluster's did not, as those that a server counts in its memory do whenever it
// starts. They may be any after an interruption, even those of the cache, for
// objects that have changed. Where lists have no version, each costs a second
// one, and a resume rests on the versions of objects.
func (s *server) recounts() bool {
	return !s.undated && s.informer.siblings.wentBack(s.epoch)
}

// pageSize returns how many objects a page is requested with.
func (a *abilities) pageSize(o *Options) int64 { return max(o.PageSize>>a.smaller, 1) }

// shrink makes the pages of the next list smaller after one was too large: the
// objects in it may be valid.
func (a *abilities) shrink(limit int64, err error) {
	if e, ok := errors.AsType[*wire.LimitError](err); ok && e.What == wire.ResponseBytes && limit > 1 {
		a.smaller++
	}
}

func (s *server) listOptions() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: s.informer.key.LabelSelector, FieldSelector: s.informer.key.FieldSelector}
}

// streamOptions make a watch begin with the current objects. Bookmarks must be
// requested, too: without them the server never marks the end of the initial
// objects.
func streamOptions(o metav1.ListOptions) metav1.ListOptions {
	o.SendInitialEvents = new(true)
	o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	o.AllowWatchBookmarks = true
	return o
}

func (s *server) watchSeconds() *int64 {
	return new(int64(jitter(s.informer.pool.options.WatchTimeout) / time.Second))
}

// jitter returns between two thirds and four thirds of d, at random.
func jitter(d time.Duration) time.Duration { return 2*d/3 + rand.N(2*d/3) }

// quiet records that a watch carried nothing. The first such watch counts as a
// stall, since it may have been one; from then on silence is normal for the
// resource.
func (s *server) quiet() {
	if !s.silent {
		s.silent = true
		s.informer.count(countStalls)
	}
}

// request returns a request for the key.
func (s *server) request(opts metav1.ListOptions) Request {
	return Request{Key: s.informer.key, Epoch: s.epoch, Options: opts}
}

// ready calls the source, whose panic becomes an error.
func (s *server) ready(ctx context.Context) (epoch Epoch, err error) {
	err = s.informer.pool.calls.Here("Source", &s.informer.key, func() (err error) {
		epoch, err = s.informer.pool.options.Source.Ready(ctx, s.informer.key.Cluster)
		return err
	})
	return epoch, err
}

// discover queries the server for the resource. supported is false if the
// source cannot.
func (s *server) discover(ctx context.Context) (found Discovery, supported bool, err error) {
	source, supported := s.informer.pool.options.Source.(Discoverer)
	if !supported {
		return found, false, nil
	}
	err = s.informer.pool.calls.Apart("Source", &s.informer.key, func() (err error) {
		found, err = source.Discover(ctx, s.request(metav1.ListOptions{}))
		return err
	})

	return found, true, err
}

// kindOf returns the kind of the resource, as the source or the server's lists
// know it.
func (s *server) kindOf(ctx context.Context) (kind string, err error) {
	if source, ok := s.informer.pool.options.Source.(KindSource); ok {
		err := s.informer.pool.calls.Apart("Source", &s.informer.key, func() (err error) {
			kind, err = source.KindOf(ctx, s.request(metav1.ListOptions{}))
			return err
		})
		if kind != "" || err != nil {
			return kind, err
		}
	}
	return s.listKind(ctx)
}

// listKind requests the shortest possible list, and returns the kind of its
// items.
func (s *server) listKind(ctx context.Context) (string, error) {
	opts := s.listOptions()
	opts.Limit = 1
	header, err := s.header(ctx, opts, questionTimeout, true)
	if err != nil {
		return "", err
	}
	kind, ok := strings.CutSuffix(header.Kind, listSuffix)
	if !ok || kind == "" {
		return "", fmt.Errorf("%s: %w: the list does not name it", s.informer.key, ErrKind)
	}
	return kind, nil
}
