// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"cmp"
	"context"
	"net"
	"time"
)

// Options configures a Transport. Dial is required. A zero in any other field
// means its default.
type Options struct {
	// Dial returns a connection to addr (host:port) on which HTTP/2 was
	// negotiated, such as a *tls.Conn after its handshake. If the peer does not
	// speak HTTP/2, Dial returns an error that wraps ErrNotHTTP2. Its context
	// ends after 30 seconds and when the Transport is closed, but not with the
	// request that needed the connection first, because others may be waiting
	// for the connection, too. The connection must support write deadlines.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Check is called with the connection over which a request is about to be
	// sent, each time it is sent. If Check returns an error, nothing of the
	// request is sent, and RoundTrip returns that error. Check may block for as
	// long as ctx, the context of the request, lasts; the request's place on the
	// connection is taken meanwhile. Default: none.
	Check func(ctx context.Context, over net.Conn) error

	// Spare returns how many of the streams that the server allows on a
	// connection, as returned by Dial, are kept for requests that prefer it (see
	// Prefer). At least one stream is for all requests. Spare is called under a
	// lock, and must not block. Default: none.
	Spare func(over net.Conn) int

	// PingAfter is how long a connection may be silent before it is pinged.
	// Default 30 s.
	PingAfter time.Duration
	// PingTimeout is how long a connection may stay silent after a ping or a
	// write before it is closed. Default 15 s.
	PingTimeout time.Duration
	// IdleTimeout is how long a connection without streams is kept. It may last
	// up to twice as long. Default 90 s.
	IdleTimeout time.Duration

	// MaxHeaderBytes bounds the headers of one response, both their encoded
	// size and their size as HTTP/2 defines it. Default 256 KiB, at least 4
	// KiB.
	MaxHeaderBytes int
	// StreamWindow is how many bytes of a body may be waiting for its reader.
	// Default 256 KiB, at least 16 KiB.
	StreamWindow int
	// ConnWindow is how many bytes may be in flight on one connection. Default
	// 4 MiB, at least 64 KiB.
	ConnWindow int
}

const (
	dialTimeout = 30 * time.Second // for Options.Dial, and for the peer's first frame
	maxWindow   = 1<<31 - 1
)

func (o Options) withDefaults() Options {
	o.PingAfter = cmp.Or(o.PingAfter, 30*time.Second)
	o.PingTimeout = cmp.Or(o.PingTimeout, 15*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 90*time.Second)
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, 256<<10)
	o.StreamWindow = cmp.Or(o.StreamWindow, 256<<10)
	o.ConnWindow = cmp.Or(o.ConnWindow, 4<<20)

	return o
}
