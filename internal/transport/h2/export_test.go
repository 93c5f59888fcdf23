// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

// SkipStreams makes id the number of the next stream of every connection.
func SkipStreams(t *Transport, id uint32) {
	for _, c := range t.conns() {
		c.mu.Lock()
		c.nextID = id
		c.mu.Unlock()
	}
}

// Parked returns how many bytes of received data wait for their readers, and
// how much memory they occupy.
func Parked(t *Transport) (data, memory int) {
	for _, c := range t.conns() {
		c.mu.Lock()
		for _, s := range c.streams {
			for k := s.data.first; k != nil; k = k.next {
				data += len(k.data)
				memory += len(k.buf)
			}
		}
		c.mu.Unlock()
	}
	return data, memory
}

// Hold reserves a place on the only connection, and returns what uses it for a
// stream. If ended is not nil, the stream's context has ended it in between.
func Hold(t *Transport) (start func(ended error) error) {
	c := t.conns()[0]
	if !c.reserve() {
		panic("no room")
	}
	return func(ended error) error {
		s := &stream{c: c}
		s.cond.L = &c.mu
		if ended != nil {
			s.cancel(ended)
		}
		defer c.finish()
		return c.start(s, nil)
	}
}

// Pools returns the number of addresses that are remembered.
func Pools(t *Transport) int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return len(t.pools)
}

// Queue waits for a place like a request, until it is told to give up.
func Queue(t *Transport, addr string) (abandon func()) {
	_, p, place, _ := t.reserve(addr)
	return func() { t.abandon(p, place) }
}
