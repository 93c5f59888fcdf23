// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/wire"
)

const (
	// stall is how long a stream may carry nothing, and the time in which it
	// has to begin; a server sends a bookmark every minute.
	stall = 3 * time.Minute
	// life is about how long a stream is requested for.
	life = 30 * time.Minute
	// firstRetry is the wait after a stream that failed soon; it doubles up to
	// maxRetry. refusedRetry is the wait after a refusal, which a right or an
	// upgrade has to end.
	firstRetry   = time.Second
	maxRetry     = 30 * time.Second
	refusedRetry = 5 * time.Minute
	// maxBytes bounds the metadata of a definition, whose annotations may have
	// 256 KiB. A larger one is a change of unknown name.
	maxBytes = 1 << 20
)

var errStalled = errors.New("nothing received")

// stream follows the changes of one resource.
type stream struct {
	watcher *Watcher
	key     informerpool.Key
}

// run follows the resource until ctx ends.
func (s *stream) run(ctx context.Context) {
	wait := firstRetry
	for ctx.Err() == nil {
		began := time.Now()
		err := s.follow(ctx)
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			wait = refusedRetry
		case time.Since(began) >= maxRetry:
			wait = firstRetry
		default:
			wait = min(2*wait, maxRetry)
		}
		if !timetable.Sleep(ctx, wait/2+rand.N(wait/2)) {
			return
		}
	}
}

// follow watches the resource from its current version, until the watch ends.
func (s *stream) follow(ctx context.Context) error {
	source := s.watcher.config.Source
	epoch, err := source.Ready(ctx, s.key.Cluster)
	if err != nil {
		return err
	}
	all := ctx // of all streams: what this one reports is looked for after its end, too
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer silence.Stop()

	r := informerpool.Request{Key: s.key, Epoch: epoch, MetadataOnly: true}
	version, err := current(ctx, source, r)
	if err != nil {
		return err
	}
	r.Options = metav1.ListOptions{
		ResourceVersion:     version,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      new(int64((life/2 + rand.N(life/2)) / time.Second)),
	}
	body, err := source.Watch(ctx, r)
	if err != nil {
		return err
	}
	defer func() {
		cancel(nil) // before Close, which would otherwise read the rest of the body to reuse the connection
		_ = body.Close()
	}()
	s.watcher.changed(all, settled)

	frames := wire.NewFrameReader(body, wire.Limits{Object: maxBytes, Pass: true})
	defer frames.Close()
	for {
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		silence.Reset(stall)
		switch {
		case frame.Type == wire.Error:
			return errReported
		case frame.Type != wire.Bookmark && s.concerns(frame):
			s.watcher.changed(all, settle)
		}
	}
}

// current returns the current version of the resource, which the shortest list
// shows.
func current(ctx context.Context, source informerpool.Source, r informerpool.Request) (string, error) {
	r.Options.Limit = 1
	body, err := source.List(ctx, r)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	items := wire.NewListReader(body, wire.Limits{Object: maxBytes, Pass: true})
	defer items.Close()
	for {
		if _, err := items.Next(); errors.Is(err, io.EOF) {
			return items.Header().ResourceVersion, nil
		} else if err != nil {
			return "", err
		}
	}
}

var errReported = errors.New("the server ended the watch with an error")

// concerns reports whether a frame is about a group in which kinds are missing,
// or of unknown content.
func (s *stream) concerns(frame wire.Frame) bool {
	it, err := wire.Scan(frame.Object)
	_, group, ok := strings.Cut(it.Name, ".")
	return err != nil || !ok || s.watcher.wants(group)
}
