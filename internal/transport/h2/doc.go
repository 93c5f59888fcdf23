// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package h2 is an HTTP/2 client for GET requests, whose responses may never
// end: watches, and the lists and other reads beside them.
//
// It exists to make idle streams cheap. net/http runs a goroutine for every
// stream and keeps the request, response, headers and pipe buffers for as long
// as the stream lives: some 6 KB, and more after it has carried data. Here a
// stream that waits for data is one small struct and takes less than 500 bytes
// in all. One goroutine per connection reads for all streams, received data is
// kept in pooled buffers until it is read, and nothing of the request and
// response is retained once the headers have been delivered. The end of a
// request's context is detected through [context.AfterFunc], which costs no
// goroutine either; a context that never ends costs nothing.
//
// # Who does what
//
//	     RoundTrip                                stream.Read, Close
//	         │                                           ▲  │
//	      acquire                                        │  │
//	         │                                    chunks │  │ windows,
//	         ▼                                           │  │ resets
//	pool: connections to one address                     │  │
//	  waiters, at most one dial                          │  │
//	         │                                           │  ▼
//	         │ place   ┌─ conn.mu ───────────────────────────────────┐
//	         └───────► │ places ── open ──► streams                  │
//	                   │ outbox, allowed, keepalive, budget          │
//	                   └─────────────────────────────────────────────┘
//	                        │ HEADERS,                   ▲ HEADERS, DATA,
//	                        │ RST_STREAM,                │ RST_STREAM,
//	                        │ WINDOW_UPDATE,             │ SETTINGS, PING,
//	                        ▼ PING, GOAWAY               │ GOAWAY
//	                     writer                      read loop
//	                        └────────►   peer   ─────────┘
//
// The read loop of a connection never writes and never waits for a consumer.
// Outgoing frames are appended to the connection's outbox, under its lock. A
// writer that lives only while there is something to send transmits them
// outside every lock and with a write deadline. So neither a consumer nor a
// peer that stops reading can delay another stream, a cancellation, or a Close.
//
// Locks are taken in the order Transport.mu, conn.mu. None is held over I/O, a
// callback, or a wait, except for the wait of a sync.Cond on that very lock.
//
// # Flow control
//
// A stream's window is opened again only as its body is read, so a consumer
// that does not read retains at most the stream window, plus the overhead of
// partly filled buffers. The connection's window is opened again as data
// arrives, so such a consumer does not block the other streams.
//
// # What a peer cannot do
//
// Header blocks are bounded in size and number of frames. Useless frames (empty
// DATA, PING, SETTINGS, unknown frames, frames for streams that ended long ago)
// are charged to a budget that refills slowly, and answers that the peer does
// not read are bounded. A peer that exceeds these limits loses the connection
// with ENHANCE_YOUR_CALM. A peer that keeps a new connection for 30 s without
// allowing a stream loses it, too, and requests that wait fail with
// ErrNoStreams. Error texts contain nothing from the peer but numbers.
//
// # Tests
//
// TestIdleStreamIsSmall covers memory. TestFloodEndsTheConnection covers
// hostile peers. TestHalfOpenConnectionIsNoticed covers dead ones.
package h2
