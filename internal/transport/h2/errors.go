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
	// returns it, wrapped, and RoundTrip passes it on, so that the caller can
	// fall back to another transport.
	ErrNotHTTP2 = errors.New("h2: the peer does not speak HTTP/2")
	// ErrUnsupported indicates a request that this transport does not support:
	// anything other than a GET over https without a body, trailers or an
	// upgrade of the connection.
	ErrUnsupported = errors.New("h2: unsupported request")
	// ErrRetired indicates that the Transport was retired. Nothing of the
	// request has been processed, so it can be sent elsewhere.
	ErrRetired = errors.New("h2: transport retired")
	// ErrWatchEnded indicates that EndWatches ended a watch.
	ErrWatchEnded = errors.New("h2: watch ended")
	// ErrWaiting indicates that the context of a request ended before there was
	// a connection for it.
	ErrWaiting = errors.New("waiting for a connection")
	// ErrClosed indicates that the Transport was closed.
	ErrClosed = errors.New("h2: transport closed")
	// ErrConnectionLost indicates that the connection of a stream broke. It has
	// net/http's text, because client-go recognizes that text as worth a retry.
	ErrConnectionLost = errors.New("http2: client connection lost")
	// ErrSilent indicates that the peer did not answer a ping. It comes with
	// ErrConnectionLost.
	ErrSilent = errors.New("no answer to a ping")
	// ErrNoStreams indicates that the server keeps connections without allowing
	// a stream on them. It comes with ErrConnectionLost.
	ErrNoStreams = errors.New("the server allows no streams")
	// ErrUnprocessed indicates that the server did not begin to process the
	// request, so any request can safely be sent again. RoundTrip has already
	// tried several times, on different connections.
	ErrUnprocessed = errors.New("h2: the server did not process the request")
	// ErrHeaderTooLarge indicates that the response's headers exceed
	// Options.MaxHeaderBytes, or that the request's headers exceed the server's
	// limit.
	ErrHeaderTooLarge = errors.New("h2: headers too large")
)

// StreamError describes the end of one stream, either by the peer or because of
// something the peer sent.
type StreamError struct {
	// StreamID is the number of the stream.
	StreamID uint32
	// Code is the HTTP/2 error code.
	Code http2.ErrCode
	// Err is the reason in our words. It is nil if the peer ended the stream on
	// its own initiative.
	Err error
}

// Error implements error. The text begins like that of net/http's error for the
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

// ProtocolError describes a violation by the peer that cost it the connection.
type ProtocolError struct {
	// Code is the error code sent to the peer.
	Code http2.ErrCode
	// Reason describes the violation.
	Reason string
}

// Error implements error.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("http2: connection error: %v: %s", e.Code, e.Reason)
}

// GoAwayError describes the peer's notice that it is giving up the connection.
type GoAwayError struct {
	// LastStreamID is the last stream that the peer processed or will process.
	LastStreamID uint32
	// Code is the peer's error code.
	Code http2.ErrCode
}

// Error implements error. It omits the debug data that the peer may have sent,
// because the peer chooses its bytes.
func (e *GoAwayError) Error() string {
	return fmt.Sprintf("http2: server sent GOAWAY: last stream %d, %v", e.LastStreamID, e.Code)
}

var (
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
