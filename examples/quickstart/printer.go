// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// printer prints the story, a line at a time. It is safe for concurrent use.
type printer struct {
	start time.Time

	mu sync.Mutex // protects w
	w  io.Writer
}

func newPrinter(w io.Writer) *printer { return &printer{start: time.Now(), w: w} }

// chapter begins a part of the story.
func (p *printer) chapter(title string) { p.print("\n== " + title + "\n") }

// say prints a line with the time since the start.
func (p *printer) say(format string, args ...any) { p.stamped("", format, args...) }

// ok prints an expectation that was met.
func (p *printer) ok(format string, args ...any) { p.stamped("ok: ", format, args...) }

func (p *printer) stamped(mark, format string, args ...any) {
	p.print(fmt.Sprintf("%6.1fs  %s%s\n", time.Since(p.start).Seconds(), mark, fmt.Sprintf(format, args...)))
}

// table prints aligned columns, below the text of the lines.
func (p *printer) table(rows [][]string) {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(t, "         "+strings.Join(row, "\t"))
	}
	_ = t.Flush() // a strings.Builder never fails
	p.print(b.String())
}

func (p *printer) print(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.w, text) // without a reader the program still ends in order
}

// working prints every few seconds that something is still under way, until the
// function it returns is called.
func (p *printer) working(what string) (done func()) {
	p.say("%s ...", what)
	begin := time.Now()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.say("... still %s, for %d s now", what, int(time.Since(begin).Seconds()))
			case <-stop:
				return
			}
		}
	})
	return func() { close(stop); wg.Wait() }
}
