// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// testlog turns events into the output of go test.
type testlog struct {
	out   *printer
	open  map[string]*pkg // packages that have not ended
	tests []timing
	fails []string // the closing line of each package that failed
}

// timing is how long one test took.
type timing struct {
	name string
	took time.Duration
}

func newLog(out io.Writer) *testlog {
	return &testlog{out: &printer{to: out}, open: map[string]*pkg{}}
}

// printer remembers the first error.
type printer struct {
	to  io.Writer
	err error
}

func (p *printer) print(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.to, format, args...)
	}
}

// read prints each package as soon as it has ended. A line that is no event is
// printed as it is.
func (l *testlog) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			l.line(line)
		}
		if errors.Is(err, io.EOF) {
			return l.out.err
		}
		if err != nil {
			return err
		}
	}
}

func (l *testlog) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		l.out.print("%s", line)
		return
	}
	switch {
	case e.Action == "build-output":
		l.out.print("%s", e.Output)
	case e.Package != "":
		l.event(e)
	}
}

func (l *testlog) event(e event) {
	p := l.open[e.Package]
	if p == nil {
		p = &pkg{tests: map[string]*test{}}
		l.open[e.Package] = p
	}
	ended := e.Action == "pass" || e.Action == "fail" || e.Action == "skip"
	switch {
	case e.Action == "output":
		p.of(e.Test).output = append(p.of(e.Test).output, e.Output)
	case e.Test == "" && ended:
		delete(l.open, e.Package)
		l.end(p, e.Action == "fail")
	case ended:
		p.of(e.Test).result = e.Action
		if !strings.Contains(e.Test, "/") {
			took := time.Duration(e.Elapsed * float64(time.Second))
			l.tests = append(l.tests, timing{name: e.Package + " " + e.Test, took: took})
		}
	case e.Test != "":
		p.of(e.Test)
	}
}

func (l *testlog) end(p *pkg, failed bool) {
	if failed {
		p.printAll(l.out)
		l.fails = append(l.fails, p.closing())
		return
	}
	l.out.print("%s", p.closing())
}

// close prints the packages that did not end, the n slowest tests, and the
// packages that failed.
func (l *testlog) close(n int) {
	for _, name := range slices.Sorted(maps.Keys(l.open)) {
		l.open[name].printAll(l.out)
		l.fails = append(l.fails, fmt.Sprintf("FAIL\t%s\tdid not end\n", name))
	}
	slices.SortStableFunc(l.tests, func(a, b timing) int { return cmp.Compare(b.took, a.took) })
	if n = min(n, len(l.tests)); n > 0 {
		l.out.print("The %d slowest of %d tests:\n", n, len(l.tests))
	}
	for _, t := range l.tests[:n] {
		l.out.print("%8.2fs  %s\n", t.took.Seconds(), t.name)
	}
	if !l.failed() {
		return
	}
	for _, line := range l.fails {
		l.out.print("%s", line)
	}
	l.out.print("FAIL\n")
}

func (l *testlog) failed() bool { return len(l.fails) > 0 || l.out.err != nil }
