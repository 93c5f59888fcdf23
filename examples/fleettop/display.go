// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// display shows frames, and notes of what has happened between them. Its
// methods are safe for concurrent use.
type display interface {
	// interval returns the time between two frames.
	interval() time.Duration
	begin()
	draw(d drawing)
	note(text string)
	// end is the last call.
	end()
}

// drawing is what a display shows. It is read-only.
type drawing interface {
	// lines returns it with notes, within width and height, where zero means no
	// limit.
	lines(width, height int, notes []string) []string
}

// newDisplay returns the display for standard output, to which out prints.
func newDisplay(out *story.Printer, plain bool) display {
	if _, _, ok := terminalSize(); ok && !plain {
		return &terminal{
			out: out,
			size: func() (width, height int) {
				width, height, _ = terminalSize()
				return width, height
			},
		}
	}
	return lines{out: out}
}

// terminalSize returns the columns and rows of the terminal that is standard
// output, and reports whether that is one.
func terminalSize() (columns, rows int, ok bool) {
	var size struct{ rows, columns, width, height uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, os.Stdout.Fd(), syscall.TIOCGWINSZ,
		uintptr(unsafe.Pointer(&size)))
	if size.columns == 0 || size.rows == 0 {
		return 80, 24, errno == 0 // a terminal of unknown size
	}
	return int(size.columns), int(size.rows), errno == 0
}

// lines prints the frames one below the other.
type lines struct{ out *story.Printer }

func (lines) interval() time.Duration { return 3 * time.Second }
func (lines) begin()                  {}
func (lines) end()                    {}
func (l lines) note(text string)      { l.out.Say("%s", text) }

func (l lines) draw(d drawing) {
	l.out.Print("\n" + strings.Join(d.lines(0, 0, nil), "\n") + "\n\n")
}

// Control sequences of terminals.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	bold        = "\x1b[1m"
	normal      = "\x1b[0m"
)

// keptNotes is how many notes a terminal shows.
const keptNotes = 5

// terminal redraws one frame, on the second screen of the terminal, so that what
// was on the first one comes back at the end.
type terminal struct {
	out  *story.Printer
	size func() (width, height int)

	mu    sync.Mutex // protects the fields below
	notes []string   // newest first
	last  drawing
}

func (*terminal) interval() time.Duration { return time.Second }

func (t *terminal) begin() { t.out.Print(enterScreen) }

func (t *terminal) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append([]string{time.Now().Format(time.TimeOnly) + "  " + text}, t.notes...)
	t.notes = t.notes[:min(len(t.notes), keptNotes)]
}

func (t *terminal) draw(d drawing) {
	t.mu.Lock()
	t.last = d
	notes := t.notes
	t.mu.Unlock()
	width, height := t.size()
	text := d.lines(width, height, notes)
	text[0] = bold + text[0] + normal
	t.out.Print(home + strings.Join(text, clearLine+"\r\n") + clearLine + clearBelow)
}

// end leaves the last drawing on the first screen.
func (t *terminal) end() {
	t.mu.Lock()
	d := t.last
	t.mu.Unlock()
	t.out.Print(leaveScreen)
	if d != nil {
		width, _ := t.size()
		t.out.Print(strings.Join(d.lines(width, 0, nil), "\n") + "\n")
	}
}
