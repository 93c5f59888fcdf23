// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// maxContinuations is how many extra frames one header block may be split into,
// beyond those that its size requires.
const maxContinuations = 16

// block is a header block being read. It is owned by the read loop.
type block struct {
	max int // Options.MaxHeaderBytes
	dec *hpack.Decoder

	fields []hpack.HeaderField
	size   int  // of the fields, as HTTP/2 defines it
	bad    bool // malformed
	large  bool // larger than max
}

func (b *block) init(limit int) {
	b.max = limit
	b.dec = hpack.NewDecoder(maxTable, b.add)
	b.dec.SetMaxStringLength(limit)
}

// add appends one decoded field.
func (b *block) add(f hpack.HeaderField) {
	b.size += int(f.Size())
	b.large = b.large || b.size > b.max
	b.bad = b.bad || !b.valid(f)
	if b.large || b.bad {
		b.dec.SetEmitEnabled(false) // decoding continues only to keep the table correct
		return
	}
	b.fields = append(b.fields, f)
}

// valid reports whether a field is allowed in its position.
func (b *block) valid(f hpack.HeaderField) bool {
	if f.IsPseudo() {
		return f.Name == ":status" && len(b.fields) == 0
	}
	switch f.Name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	}
	return f.Name == strings.ToLower(f.Name) && httpguts.ValidHeaderFieldName(f.Name) &&
		httpguts.ValidHeaderFieldValue(f.Value)
}

// readBlock reads the whole header block that begins with the frame fh. After
// an error the two sides' tables may differ, or the peer has exceeded a limit,
// so the connection has to end.
func (r *reads) readBlock(fh http2.FrameHeader) error {
	b := &r.block
	b.fields, b.size, b.bad, b.large = nil, 0, false, false
	b.dec.SetEmitEnabled(true)
	encoded, frames := 0, 0
	for {
		f, err := r.fr.ReadFrameForHeader(fh)
		if err != nil {
			return err
		}
		fragment, last := fragmentOf(f)
		if encoded += len(fragment); encoded > b.max {
			return &ProtocolError{http2.ErrCodeEnhanceYourCalm, "header block too large"}
		}
		if frames++; frames > maxContinuations+b.max/maxFrame {
			return &ProtocolError{http2.ErrCodeEnhanceYourCalm, "header block in too many frames"}
		}
		if _, err := b.dec.Write(fragment); err != nil {
			return &ProtocolError{http2.ErrCodeCompression, "bad header block"}
		}
		if last {
			break
		}
		if fh, err = r.fr.ReadFrameHeader(); err != nil { // a CONTINUATION of this block, or an error
			return err
		}
	}

	if err := b.dec.Close(); err != nil {
		return &ProtocolError{http2.ErrCodeCompression, "truncated header block"}
	}
	return nil
}

func fragmentOf(f http2.Frame) (fragment []byte, last bool) {
	switch f := f.(type) {
	case *http2.HeadersFrame:
		return f.HeaderBlockFragment(), f.HeadersEnded()
	case *http2.ContinuationFrame:
		return f.HeaderBlockFragment(), f.HeadersEnded()
	}

	panic("h2: not part of a header block")
}

// readHeaders reads the headers of a response, interim ones, or trailers.
func (r *reads) readHeaders(fh http2.FrameHeader) error {
	if err := r.readBlock(fh); err != nil {
		return err
	}
	b := &r.block
	fields := b.fields
	b.fields = nil // a stream may have taken them over

	r.c.mu.Lock()
	s, err := r.c.lookupLocked(fh.StreamID)
	last := fh.Flags.Has(http2.FlagHeadersEndStream)
	switch {
	case s == nil:
	case b.large:
		err = &StreamError{s.id, http2.ErrCodeProtocol, ErrHeaderTooLarge}
	case b.bad:
		err = &StreamError{s.id, http2.ErrCodeProtocol, errResponse}
	case s.answered:
		err = s.trailersLocked(fields, last)
	default:
		err = s.headersLocked(fields, last)
	}

	ended := s != nil && s.err != nil
	r.c.mu.Unlock()

	if ended {
		r.c.finish(s)
	}

	return err
}

// headersLocked processes the headers of the response.
func (s *stream) headersLocked(fields []hpack.HeaderField, last bool) error {
	h, err := newHead(fields, last)
	switch {
	case err != nil:
		return &StreamError{s.id, http2.ErrCodeProtocol, err}
	case h == nil:
		return s.c.spendLocked() // an interim response
	}

	s.c.mu.budget.forgiveLocked(perResponse)
	s.answered = true
	s.head = h
	s.left = h.left
	if h.trailer != nil {
		s.trailer = &trailer{header: h.trailer}
	}
	if last {
		s.c.endLocked(s, s.endOfData())
	}
	s.cond.Broadcast()

	return nil
}

// trailersLocked processes the trailers.
func (s *stream) trailersLocked(fields []hpack.HeaderField, last bool) error {
	if !last || len(fields) > 0 && fields[0].IsPseudo() {
		return &StreamError{s.id, http2.ErrCodeProtocol, errTrailer}
	}
	if s.trailer != nil {
		s.trailer.fields = fields
	}
	s.c.endLocked(s, s.endOfData())
	return nil
}
