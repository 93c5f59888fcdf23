// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"errors"
	"io"
	"maps"
	"testing/synctest"
	"time"

	"github.com/fleetcache/fleetcache/informerpool"
)

// ErrUnreachable is the error of a server that cannot be reached.
var ErrUnreachable = errors.New("dial tcp: connection refused")

// Hang returns a channel that never closes, for the fields of a Server that
// make requests wait.
func Hang() chan struct{} { return make(chan struct{}) }

// Long is a time that no informer needs for anything.
const Long = time.Hour

// FailWith answers every request with an error, until Heal.
func (s *Server) FailWith(err error) {
	s.Set(func(s *Server) { s.Fail = func(string) error { return err } })
}

// Heal answers requests as usual again.
func (s *Server) Heal() { s.Set(func(s *Server) { s.Fail = nil }) }

// Compact drops the history, so that resuming a watch fails with 410.
func (s *Server) Compact() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Compacted, s.Log = s.Version, nil
}

// Cut ends every watch with an error.
func (s *Server) Cut(err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for w := range s.Watchers {
		w.End(err)
	}
	clear(s.Watchers)
}

// SendBookmark sends every watch a bookmark.
func (s *Server) SendBookmark() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	frame := BookmarkFrame(s.Version, false)
	for w := range s.Watchers {
		if s.Version > w.From {
			w.Push(frame)
		}
	}
}

// Speak makes a model server send a bookmark once a minute, as an API server
// does.
func (s *Server) Speak(minutes int) {
	for range minutes {
		After(time.Minute)
		s.SendBookmark()
		synctest.Wait()
	}
}

// Become makes the server another cluster, with other objects.
func (s *Server) Become(epoch informerpool.Epoch, rv uint64) {
	s.Mu.Lock()
	s.Epoch, s.Version, s.Compacted, s.Log = epoch, rv, 0, nil
	clear(s.Objects)
	clear(s.snapshots)
	s.Mu.Unlock()
	s.Cut(io.ErrUnexpectedEOF)
}

// Copy returns a server with the same objects and version.
func Copy(s *Server) *Server {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	c := NewServer()
	maps.Copy(c.Objects, s.Objects)
	c.Version = s.Version
	return c
}

// Restore returns a server to an earlier state. The next version is bump later
// than it would otherwise be; watches from before fail with 410.
func (s *Server) Restore(before *Server, bump uint64) {
	s.Mu.Lock()
	s.Objects = maps.Clone(before.Objects)
	s.Version, s.Log = before.Version+bump, nil
	if bump > 0 {
		s.Compacted = s.Version
	}
	clear(s.snapshots)
	s.Mu.Unlock()
	s.Cut(io.ErrUnexpectedEOF)
}

// Deafly changes a model server's objects without sending the changes to its
// watches.
func (s *Server) Deafly(change func()) {
	s.Set(func(s *Server) { s.Deaf = true })
	change()
	s.Set(func(s *Server) { s.Deaf = false })
}

// Away makes changes to a server that its informers see by a list, and not in
// their stream.
func (s *Server) Away(happens func()) {
	s.FailWith(ErrUnreachable)
	s.Cut(io.ErrUnexpectedEOF)
	happens()
	s.Compact()
	s.Heal()
	After(time.Minute)
}

// Push sends a frame to every watcher.
func Push(s *Server, kind, object string) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for w := range s.Watchers {
		w.Push(Frame(kind, []byte(object)))
	}
}
