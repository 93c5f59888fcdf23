// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"fmt"
	"io"
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

	mu sync.Mutex // protects w
	w  io.Writer
}

// NewPrinter returns a Printer that writes to w, and whose time starts now.
func NewPrinter(w io.Writer) *Printer { return &Printer{start: time.Now(), w: w} }

// Chapter begins a part of the story.
func (p *Printer) Chapter(title string) { p.Print("\n== " + title + "\n") }

// Say prints a line with the time since the start.
func (p *Printer) Say(format string, args ...any) { p.stamped("", format, args...) }

// OK prints an expectation that was met.
func (p *Printer) OK(format string, args ...any) { p.stamped("ok: ", format, args...) }

func (p *Printer) stamped(mark, format string, args ...any) {
	p.Print(fmt.Sprintf("%6.1fs  %s%s\n", time.Since(p.start).Seconds(), mark, fmt.Sprintf(format, args...)))
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
	_, _ = io.WriteString(p.w, text)
}

// Working prints every five seconds that something is still under way, until
// the function it returns is called, which must be called once.
func (p *Printer) Working(what string) (done func()) {
	p.Say("%s ...", what)
	begin := time.Now()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.Say("... still %s, for %d s now", what, int(time.Since(begin).Seconds()))
			case <-stop:
				return
			}
		}
	})
	return func() { close(stop); wg.Wait() }
}
