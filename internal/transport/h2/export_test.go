// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

// Streams returns the number of streams in use: responses whose body has
// neither ended nor been closed, and requests waiting for their response.
func (t *Transport) Streams() (n int) {
	for _, c := range t.conns() {
		c.mu.Lock()
		n += len(c.mu.places.streams)
		c.mu.Unlock()
	}
	return n
}

// Connections returns the number of connections.
func (t *Transport) Connections() int { return len(t.conns()) }

// SkipStreams sets the number of the next stream of every connection to id.
func SkipStreams(t *Transport, id uint32) {
	for _, c := range t.conns() {
		c.mu.Lock()
		c.mu.places.nextID = id
		c.mu.Unlock()
	}
}

// Parked returns how many bytes of received data are waiting for their readers,
// and how much memory they occupy.
func Parked(t *Transport) (data, memory int) {
	for _, c := range t.conns() {
		c.mu.Lock()
		for _, s := range c.mu.places.streams {
			for k := s.data.first; k != nil; k = k.next {
				data += len(k.data)
				memory += len(k.buf)
			}
		}
		c.mu.Unlock()
	}
	return data, memory
}

// Hold reserves a place on the only connection, and returns a function that
// uses it for a stream. If ended is not nil, it is the error with which the
// stream's context has ended in between.
func Hold(t *Transport) (start func(ended error) error) {
	c := t.conns()[0]
	if !c.reserve(false) {
		panic("no room")
	}
	return func(ended error) error {
		s := &stream{c: c}
		s.cond.L = &c.mu.Mutex
		if ended != nil {
			s.cancel(ended)
		}
		defer c.finish()
		return c.start(s, nil)
	}
}

// Pools returns the number of addresses that have a pool.
func Pools(t *Transport) int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return len(t.pools)
}

// Queue waits for a place as a request does, until abandon is called.
func Queue(t *Transport, addr string) (abandon func()) {
	_, p, place, _ := t.reserve(addr, nil)
	return func() { t.cancel(p, place) }
}
