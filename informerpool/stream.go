// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/internal/foreign"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// body is the body of a list or watch under the watch of a timer: when nothing arrives for the stall time-out, it ends.
type body struct {
	io.ReadCloser
	feed   *feed
	ctx    context.Context //nolint:containedctx // the request's life, to tell a stall from other ends
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// send opens a body. Waiting for the answer's header counts as a stall, too.
func (f *feed) send(ctx context.Context, open func(context.Context, Request) (io.ReadCloser, error), opts metav1.ListOptions) (*body, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &body{feed: f, ctx: ctx, cancel: cancel}
	b.timer = time.AfterFunc(f.options.StallTimeout, func() { cancel(ErrStalled) })
	rc, err := open(ctx, Request{Key: f.key, Epoch: f.known, Options: opts})
	if err != nil {
		err = b.explain(err)
		b.timer.Stop()
		cancel(errAttemptOver)
		return nil, err
	}
	b.ReadCloser = rc
	return b, nil
}

// alive notes that something arrived.
func (b *body) alive() {
	b.timer.Reset(b.feed.options.StallTimeout)
	b.feed.proof()
}

// explain returns why a body ended where the cancelled ctx alone would be the answer.
func (b *body) explain(err error) error {
	if errors.Is(err, io.EOF) || b.ctx.Err() == nil {
		return err
	}
	cause := context.Cause(b.ctx)
	if errors.Is(cause, ErrStalled) {
		b.feed.counters.stalls.inc()
		return fmt.Errorf("%s: %w: nothing received for %s", b.feed.key, ErrStalled, b.feed.options.StallTimeout)
	}
	return cause
}

func (b *body) close() {
	b.timer.Stop()
	b.cancel(errAttemptOver) // before Close, which would otherwise read the rest of the body for the connection's sake
	_ = b.Close()
}

// stream is the body of a watch.
type stream struct {
	*body
	frames *wire.FrameReader
}

func (f *feed) open(ctx context.Context, opts metav1.ListOptions) (*stream, error) {
	b, err := f.send(ctx, f.options.Source.Watch, opts)
	if err != nil {
		return nil, err
	}
	return &stream{body: b, frames: wire.NewFrameReader(b.ReadCloser, wire.Limits{Object: f.options.MaxObjectBytes})}, nil
}

// wait waits until a frame begins to arrive, holding next to nothing meanwhile.
func (s *stream) wait() error {
	if err := s.frames.Wait(); err != nil {
		return s.explain(err)
	}
	return nil
}

// next returns the next frame, valid until the next call. A frame that reports an error is returned as that error.
func (s *stream) next() (wire.Frame, error) {
	frame, err := s.frames.Next()
	if err != nil {
		return frame, s.explain(err)
	}
	s.alive()
	if frame.Type == wire.Error {
		return frame, frameStatus(frame.Object)
	}
	return frame, nil
}

func (s *stream) close() {
	s.body.close()
	s.frames.Close()
}

// page is the body of one page of a list.
type page struct {
	*body
	items *wire.ListReader
}

func (f *feed) openPage(ctx context.Context, opts metav1.ListOptions) (*page, error) {
	b, err := f.send(ctx, f.options.Source.List, opts)
	if err != nil {
		return nil, err
	}
	return &page{body: b, items: wire.NewListReader(b.ReadCloser, wire.Limits{Object: f.options.MaxObjectBytes})}, nil
}

// next goes to the next item.
func (p *page) next() error {
	if _, err := p.items.Next(); err != nil {
		return p.explain(err)
	}
	p.alive()
	return nil
}

func (p *page) header() wire.ListHeader { return p.items.Header() }

func (p *page) close() {
	p.body.close()
	p.items.Close()
}

// frameStatus returns the error that an ERROR frame reports.
func frameStatus(object []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(object, &status); err != nil || status.Kind != "Status" {
		return apierrors.NewInternalError(errors.New("watch reported an unreadable error"))
	}
	return foreign.Status(status, int(status.Code), 0)
}

// initialEventsEnd tells whether a frame is the bookmark that ends the initial objects, and the resourceVersion they show.
func initialEventsEnd(frame wire.Frame) (end bool, rv string, err error) {
	if frame.Type != wire.Bookmark {
		return false, "", nil
	}
	it, err := wire.Scan(frame.Object)
	if err != nil {
		return false, "", err
	}
	value, ok := it.Annotation(metav1.InitialEventsAnnotationKey)
	return ok && value == "true", it.ResourceVersion, nil
}
