// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

var (
	// ErrNotHTTP2 indicates that the peer does not speak HTTP/2. Options.Dial
	// returns it, wrapped, and so does RoundTrip, so that the caller falls back
	// to another transport.
	ErrNotHTTP2 = errors.New("h2: the peer does not speak HTTP/2")
	// ErrUnsupported indicates a request that this transport does not send:
	// anything but a GET over https without a body, without trailers, and
	// without the wish to upgrade the connection.
	ErrUnsupported = errors.New("h2: unsupported request")
	// ErrClosed indicates that the Transport was closed.
	ErrClosed = errors.New("h2: transport closed")
	// ErrConnectionLost indicates that the connection under a stream broke. Its
	// text is net/http's, because client-go knows that one to be worth a retry.
	ErrConnectionLost = errors.New("http2: client connection lost")
	// ErrUnprocessed indicates that the server did not begin to process the
	// request: it is safe to be sent again, whatever it is. RoundTrip has
	// already tried more than once, on different connections.
	ErrUnprocessed = errors.New("h2: the server did not process the request")
	// ErrHeaderTooLarge indicates that the response's headers are larger than
	// Options.MaxHeaderBytes, or the request's than what the server accepts.
	ErrHeaderTooLarge = errors.New("h2: headers too large")
)

// StreamError is the end of one stream, by the peer or because of what the peer
// sent.
type StreamError struct {
	// StreamID tells the stream.
	StreamID uint32
	// Code is the reason as HTTP/2 puts it.
	Code http2.ErrCode
	// Err is the reason in our words; nil if the peer ended the stream without
	// being asked.
	Err error
}

// Error implements error. The text begins as that of net/http's error for the
// same case.
func (e *StreamError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("stream error: stream ID %d; %v; received from peer", e.StreamID, e.Code)
	}
	return fmt.Sprintf("stream error: stream ID %d; %v; %v", e.StreamID, e.Code, e.Err)
}

// Unwrap returns ErrUnprocessed for a stream that the peer refused, and Err
// otherwise.
func (e *StreamError) Unwrap() error {
	if e.Err == nil && e.Code == http2.ErrCodeRefusedStream {
		return ErrUnprocessed
	}
	return e.Err
}

// ProtocolError is what the peer did wrong, so that the connection had to be
// given up.
type ProtocolError struct {
	// Code is what the peer was told.
	Code http2.ErrCode
	// Reason says more.
	Reason string
}

// Error implements error.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("http2: connection error: %v: %s", e.Code, e.Reason)
}

// GoAwayError is the peer's notice that it gives the connection up.
type GoAwayError struct {
	// LastStreamID is the last stream that the peer processed or will process.
	LastStreamID uint32
	// Code is the peer's reason.
	Code http2.ErrCode
}

// Error implements error. The debug data that the peer may have sent is left
// out: it is the peer's to choose.
func (e *GoAwayError) Error() string {
	return fmt.Sprintf("http2: server sent GOAWAY: last stream %d, %v", e.LastStreamID, e.Code)
}

var (
	errPingTimeout  = errors.New("no answer to a ping")
	errWriteTimeout = errors.New("the peer does not read")
	errIdle         = errors.New("idle connection closed")
	errRetired      = errors.New("connection no longer used")

	errMalformed = errors.New("malformed frame")
	errDataFirst = errors.New("data before headers")
	errWindow    = errors.New("data beyond the stream's window")
	errTooLong   = errors.New("data beyond the declared length")
	errOverflow  = errors.New("the stream's window overflows")
	errResponse  = errors.New("malformed response headers")
	errTrailer   = errors.New("malformed trailers")
)
