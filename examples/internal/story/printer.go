// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Printer prints a story, a line at a time. Its methods are safe for concurrent
// use. They ignore errors of the writer, so that a program without a reader
// still ends in order.
type Printer struct {
	start time.Time

	terminal bool // redraws bars

	mu   sync.Mutex // protects the fields below
	w    io.Writer
	last time.Time // when something was printed
	open bool      // the last line is a bar, which the next one replaces
}

// NewPrinter returns a Printer that writes to w, and whose time starts now.
func NewPrinter(w io.Writer) *Printer {
	p := &Printer{start: time.Now(), w: w}
	if file, ok := w.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	return p
}

// Chapter begins a part of the story.
func (p *Printer) Chapter(title string) { p.Print("\n== " + title + "\n") }

// Say prints a line with the time since the start.
func (p *Printer) Say(format string, args ...any) { p.stamped("", format, args...) }

// OK prints an expectation that was met.
func (p *Printer) OK(format string, args ...any) { p.stamped("ok: ", format, args...) }

func (p *Printer) stamped(mark, format string, args ...any) {
	p.Print(p.stamp() + mark + fmt.Sprintf(format, args...) + "\n")
}

func (p *Printer) stamp() string { return fmt.Sprintf("%6.1fs  ", time.Since(p.start).Seconds()) }

// quiet reports whether nothing was printed for d.
func (p *Printer) quiet(d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.last) >= d
}

// Table prints aligned columns, below the text of the lines.
func (p *Printer) Table(rows [][]string) {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(t, "         "+strings.Join(row, "\t"))
	}
	_ = t.Flush() // a strings.Builder never fails
	p.Print(b.String())
}

// Print prints text as it is.
func (p *Printer) Print(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.open {
		text = "\n" + text
	}
	p.open, p.last = false, time.Now()
	_, _ = io.WriteString(p.w, text)
}

// Log prints a line of a program's log. A terminal shows a line that begins
// with a bar, "[###...]", in place of the bar before it.
func (p *Printer) Log(line string) {
	if !p.terminal || !strings.HasPrefix(line, "[") {
		p.Say("%s", line)
		return
	}

	p.bar(line)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
}

// bar draws a line in place of the bar before it.
func (p *Printer) bar(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = true
	_, _ = io.WriteString(p.w, "\r\x1b[K"+p.stamp()+line)
}

// Working prints after each five seconds without a line that something is still
// under way, until the function it returns is called, which must be called
// once. A terminal shows that in one line, each second.
func (p *Printer) Working(what string) (done func()) {
	p.Say("%s ...", what)
	begin := time.Now()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if p.quiet(5 * time.Second) {
					p.still(what, int(time.Since(begin).Seconds()))
				}
			case <-stop:
				return
			}
		}
	})
	return func() { close(stop); wg.Wait() }
}

// still is short on a terminal, since a line that wraps cannot be replaced.
func (p *Printer) still(what string, seconds int) {
	if p.terminal {
		p.bar(fmt.Sprintf("... for %d s now", seconds))
	} else {
		p.Say("... still %s, for %d s now", what, seconds)
	}
}
