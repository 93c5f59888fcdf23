// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"bytes"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// shared is a buffer that is written and read by several goroutines.
type shared struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestBarsReplaceEachOtherOnATerminalAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		show := func(terminal bool) string {
			var text bytes.Buffer
			p := NewPrinter(&text)
			require.False(t, p.terminal, "a buffer is none")
			p.terminal = terminal
			p.Log("a line")
			p.Log("[#.] 50 %")
			p.Log("[##] 99 %")
			p.Say("done")
			return text.String()
		}
		require.Equal(t, "   0.0s  a line\n   0.0s  [#.] 50 %\n   0.0s  [##] 99 %\n   0.0s  done\n", show(false))
		require.Equal(t, "   0.0s  a line\n"+
			"\r\x1b[K   0.0s  [#.] 50 %\r\x1b[K   0.0s  [##] 99 %\n"+
			"   0.0s  done\n", show(true))
	})
}

func TestWorkIsMentionedOnlyAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text shared
		p := NewPrinter(&text)
		done := p.Working("building")
		for range 4 {
			time.Sleep(4 * time.Second)
			p.Log("[#.] 50 %")
		}
		synctest.Wait()
		still := regexp.MustCompile(`still building, for \d+ s`)
		require.Empty(t, still.FindAllString(text.String(), -1))

		time.Sleep(12 * time.Second)
		synctest.Wait()
		require.Len(t, still.FindAllString(text.String(), -1), 2)
		done()
	})
}

func TestWorkTakesOneLineOfATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text shared
		p := NewPrinter(&text)
		p.terminal = true
		done := p.Working("starting")
		time.Sleep(8*time.Second + time.Millisecond)
		done()
		p.Say("started")
		require.Equal(t, "   0.0s  starting ...\n"+
			"\r\x1b[K   5.0s  ... for 5 s now"+
			"\r\x1b[K   6.0s  ... for 6 s now"+
			"\r\x1b[K   7.0s  ... for 7 s now"+
			"\r\x1b[K   8.0s  ... for 8 s now\n"+
			"   8.0s  started\n", text.String())
	})
}
