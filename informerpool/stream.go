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

	"github.com/fleetcache/fleetcache/internal/sanitize"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// body is the body of a list or watch with a stall timer: if nothing arrives
// for the stall time-out, the body ends.
type body struct {
	io.ReadCloser
	server  *server
	ctx     context.Context //nolint:containedctx // the request's lifetime, to distinguish a stall from other ends
	cancel  context.CancelCauseFunc
	silence time.Duration // how long nothing may arrive
	quiet   bool          // silence alone does not prove that the stream is broken
	within  bool          // part of a frame has arrived, and the rest is due
	lacking bool          // silence proves that it has shown all the objects that it begins with
	timer   *time.Timer

	unproven bool // arriving data is no sign of life of the informer's own stream
}

// errNoBody is what a source does wrong.
var errNoBody = errors.New("the Source returned neither a body nor an error")

// send sends a request by a method of the source, which may do what it should
// not.
func (s *server) send(
	ctx context.Context, by func(context.Context, Request) (io.ReadCloser, error), r Request,
) (body io.ReadCloser, err error) {
	caller, key := &s.informer.pool.calls, &s.informer.key
	err = caller.Apart("Source", key, func() (err error) {
		if body, err = by(ctx, r); body == nil && err == nil {
			err = errNoBody
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return caller.Body(body, key), nil
}

// body opens a body. Waiting for the response's header counts as a stall, too.
func (s *server) body(
	ctx context.Context, open func(context.Context, Request) (io.ReadCloser, error),
	opts metav1.ListOptions, silence time.Duration,
) (*body, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &body{
		server:  s,
		ctx:     ctx,
		cancel:  cancel,
		silence: silence,
	}
	s.sent = time.Now()
	b.timer = time.AfterFunc(silence, func() { cancel(ErrStalled) })
	rc, err := s.send(ctx, open, s.request(opts))
	if err != nil {
		err = b.explain(err)
		b.timer.Stop()
		cancel(errAttemptOver)
		return nil, err
	}

	s.answers, b.ReadCloser = true, rc

	return b, nil
}

// alive records that data arrived.
func (b *body) alive() {
	b.timer.Reset(b.silence)
	if !b.unproven {
		b.server.informer.proof(b.server.informer.pool.clock.Now())
	}
}

// limit changes how long nothing may arrive, from now on.
func (b *body) limit(silence time.Duration) {
	b.silence = silence
	b.timer.Reset(silence)
}

// calm makes silence end the stream without blame. A server that sends no
// bookmarks for the resource is silent while nothing changes. The stream ends
// early enough for the next one to find out in time whether the server is
// there.
func (b *body) calm(quiet bool) {
	b.quiet = quiet
	b.silence = b.server.informer.pool.options.StallTimeout
	if quiet {
		b.silence -= questionTimeout + memoryTimeout
	}
	b.timer.Reset(b.silence)
}

// lack makes silence show that the objects are complete with which the stream
// begins, while it lacks some.
func (b *body) lack(lacking bool) {
	switch was := b.lacking; {
	case lacking && !was:
		b.lacking = true
		b.limit(beginningSilence)
	case was && !lacking:
		b.lacking = false
		b.calm(b.quiet)
	}
}

// explain returns why a body ended if the error would only be that of the
// canceled ctx.
func (b *body) explain(err error) error {
	if errors.Is(err, io.EOF) || b.ctx.Err() == nil || isRefusal(err) {
		return err // the data read is wrong, however the request ended
	}
	cause := context.Cause(b.ctx)
	if errors.Is(cause, ErrStalled) {
		if b.lacking {
			return errBegun
		}
		if b.quiet && !b.within {
			b.server.quiet()
			return errQuiet
		}
		b.server.informer.count(countStalls)
		return fmt.Errorf("%s: %w: nothing received for %s", b.server.informer.key, ErrStalled, b.silence)
	}

	return cause
}

func (b *body) close() {
	b.timer.Stop()
	b.cancel(errAttemptOver) // before Close, which would otherwise read the rest of the body to reuse the connection
	_ = b.Close()
}

// limits are those of readers. Objects that are too large are skipped: an
// object that any user may create must not end the stream of all others.
func (s *server) limits() wire.Limits {
	return wire.Limits{Object: s.informer.pool.options.MaxObjectBytes, Pass: true}
}

// asBudget marks the error of a body that is too large, and adds the informer's
// key to that of a malformed one.
func (s *server) asBudget(err error) error {
	if _, limit := errors.AsType[*wire.LimitError](err); limit {
		return fmt.Errorf("%s: %w: %w", s.informer.key, ErrBudget, err)
	}
	if _, malformed := errors.AsType[*wire.SyntaxError](err); malformed {
		return fmt.Errorf("%s: %w", s.informer.key, err)
	}
	return err
}

// stream is the body of a watch.
type stream struct {
	*body
	frames *wire.FrameReader
}

func (s *server) open(ctx context.Context, opts metav1.ListOptions, silence time.Duration) (*stream, error) {
	b, err := s.body(ctx, s.informer.pool.options.Source.Watch, opts, silence)
	if err != nil {
		return nil, err
	}
	return &stream{body: b, frames: wire.NewFrameReader(b.ReadCloser, s.limits())}, nil
}

// wait waits until a frame begins to arrive, holding next to no memory
// meanwhile.
func (s *stream) wait() error {
	if err := s.frames.Wait(); err != nil {
		return s.server.asBudget(s.explain(err))
	}
	s.within = true
	return nil
}

// next returns the next frame, valid until the next call. A frame that reports
// an error is returned as that error.
func (s *stream) next() (wire.Frame, error) {
	frame, err := s.frames.Next()
	if _, field := errors.AsType[*wire.FieldError](err); field {
		return frame, refusedError(s.server.informer.key, err)
	}
	if err != nil {
		return frame, s.server.asBudget(s.explain(err))
	}
	s.within = false
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
	count int // items read
}

// wholeList bounds a list in a single response, of which a page is the whole.
const wholeList = 1 << 30

// openPage opens a page of a list, of the whole objects or of their metadata
// alone.
func (s *server) openPage(
	ctx context.Context, opts metav1.ListOptions, silence time.Duration, metadata bool,
) (*page, error) {
	list := func(ctx context.Context, r Request) (io.ReadCloser, error) {
		r.MetadataOnly = metadata
		return s.informer.pool.options.Source.List(ctx, r)
	}
	b, err := s.body(ctx, list, opts, silence)
	if err != nil {
		return nil, err
	}
	limits := s.limits()
	if opts.Limit == 0 {
		limits.Response = wholeList
	}
	return &page{body: b, items: wire.NewListReader(b.ReadCloser, limits)}, nil
}

// header reads a short list to its end, and returns what it says about itself.
// proof reports whether it counts as a sign of life.
func (s *server) header(
	ctx context.Context, opts metav1.ListOptions, silence time.Duration, proof bool,
) (wire.ListHeader, error) {
	p, err := s.openPage(ctx, opts, silence, false)
	if err != nil {
		return wire.ListHeader{}, err
	}
	defer p.close()
	p.unproven = !proof
	header, err := p.read(func(scanner) error { return nil })
	if err == nil {
		p.alive() // also if it has no items
	}
	return header, err
}

// metadata lists the metadata of the objects, and returns the version of that
// list. each is called at each object. The list is no sign of life.
func (s *server) metadata(
	ctx context.Context, limit int64, silence time.Duration, each func(at scanner) error,
) (rv string, err error) {
	opts := s.listOptions()
	opts.Limit = limit
	return s.pageByPage(&opts, func() (wire.ListHeader, error) {
		p, err := s.openPage(ctx, opts, silence, true)
		if err != nil {
			return wire.ListHeader{}, err
		}
		defer p.close()
		p.unproven = true
		return p.read(each)
	})
}

// maxPages bounds a list whose server never stops handing out continue tokens.
const maxPages = 10_000

var (
	errRepeatedPage = fmt.Errorf("server repeats a page: %w", ErrBudget)
	errManyPages    = fmt.Errorf("more than %d pages: %w", maxPages, ErrBudget)
)

// pageByPage calls page for each page of a list, and returns the list's version.
func (s *server) pageByPage(
	opts *metav1.ListOptions, page func() (wire.ListHeader, error),
) (rv string, err error) {
	for range maxPages {
		header, err := page()
		switch {
		case err != nil, header.Continue == "":
			return header.ResourceVersion, err
		case header.Continue == opts.Continue:
			return "", fmt.Errorf("list %s: %w", s.informer.key, errRepeatedPage)
		}
		opts.Continue = header.Continue
	}

	return "", fmt.Errorf("list %s: %w", s.informer.key, errManyPages)
}

func (p *page) header() wire.ListHeader { return p.items.Header() }

// read calls each at each item up to the end of the page.
func (p *page) read(each func(at scanner) error) (wire.ListHeader, error) {
	for {
		_, err := p.items.Next()
		if errors.Is(err, io.EOF) {
			return p.header(), nil
		}
		if err != nil {
			return wire.ListHeader{}, p.server.asBudget(p.explain(err))
		}
		p.count++
		p.alive()
		if err := each(p.items); err != nil {
			return wire.ListHeader{}, err
		}
	}
}

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
	return sanitize.Status(status, int(status.Code), 0)
}

// initialEventsEnd reports whether a frame is the bookmark that ends the
// initial objects. The item's resourceVersion is the version of those objects.
func initialEventsEnd(frame wire.Frame) (end bool, it wire.Item, err error) {
	if frame.Type != wire.Bookmark {
		return false, it, nil
	}
	if it, err = wire.Scan(frame.Object); err != nil {
		return false, it, err
	}
	value, ok := it.Annotation(metav1.InitialEventsAnnotationKey)
	return ok && value == "true", it, nil
}

// eofIsUnexpected turns the clean end of a stream into io.ErrUnexpectedEOF
// where more was due.
func eofIsUnexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
