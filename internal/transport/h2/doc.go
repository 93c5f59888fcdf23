// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package h2 is an HTTP/2 client for GET requests whose responses may never
// end: watches, and the lists beside them.
//
// It exists for the cost of an idle stream. net/http runs a goroutine for every
// stream and keeps request, response, headers and pipe buffers with it for as
// long as the stream lives: some 6 KB, and more after it has carried data. Here
// a stream that waits for data is one small struct, and less than 500 bytes in
// all: one goroutine per connection reads for all streams, what they receive is
// kept in pooled buffers until it is read, and nothing of request and response
// stays behind once the headers were delivered. The end of a request's context
// is noticed through [context.AfterFunc], which costs no goroutine either; a
// context that never ends costs nothing.
//
// # Who does what
//
// The read loop of a connection never writes and never waits for a consumer.
// Frames to be sent are appended to the connection's outbox, under its lock,
// and a writer that lives only while there is something to send takes them to
// the peer, outside every lock and against a deadline. So neither a consumer
// that does not read, nor a peer that does not read, holds up another stream, a
// cancellation, or a Close.
//
// Locks are taken in the order Transport.mu, conn.mu. None is held over I/O, a
// callback, or a wait other than that of a sync.Cond for the very same lock.
//
// # Flow control
//
// A stream's window opens again only as its body is read, so a consumer that
// does not read parks at most the stream window, and some overhead of buffers
// that are not full. The connection's window opens again as data arrives, so
// such a consumer does not hold up the other streams.
//
// # What a peer cannot do
//
// Header blocks are bounded in size and number of frames. Frames that bring
// nothing (empty DATA, PING, SETTINGS, unknown frames, frames for streams long
// gone) are paid from a budget that refills slowly; answers that the peer does
// not read are bounded. A peer beyond that loses the connection with
// ENHANCE_YOUR_CALM. Error texts hold nothing that came from the peer but
// numbers.
package h2
