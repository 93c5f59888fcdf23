// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// pkg is the output of one package, by test. What belongs to no test has the
// empty name.
type pkg struct {
	names []string // in the order of appearance
	tests map[string]*test
}

type test struct {
	result string // pass, fail, skip, or empty for a test that has not ended
	output []string
}

func (p *pkg) of(name string) *test {
	t := p.tests[name]
	if t == nil {
		t = &test{}
		p.tests[name] = t
		p.names = append(p.names, name)
	}
	return t
}

// closing is the last line of the package, such as "ok pkg 1.2s".
func (p *pkg) closing() string {
	output := p.of("").output
	if len(output) == 0 {
		return ""
	}
	return output[len(output)-1]
}

// printAll prints the tests one after the other, though they may have run at
// once, and then what belongs to no test.
func (p *pkg) printAll(out *printer) {
	for _, name := range p.names {
		if name != "" {
			p.tests[name].print(out, name)
		}
	}
	for _, line := range p.of("").output {
		if line != "PASS\n" {
			out.print("%s", line)
		}
	}
}

func (t *test) print(out *printer, name string) {
	passed := t.result == "pass" || t.result == "skip"
	if t.result == "" {
		out.print("--- %s did not end\n", name)
	}
	for _, line := range t.output {
		if isResult(line) && !passed {
			out.print("%s", line)
		}
	}
	for _, line := range t.output {
		if isResult(line) || isFrame(line) || passed && isLog(line) {
			continue
		}
		out.print("%s", line)
	}
}

// isFrame reports whether -v adds line to the output.
func isFrame(line string) bool {
	for _, prefix := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME "} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// isResult reports whether line is the line of a test that ended.
func isResult(line string) bool {
	line = strings.TrimLeft(line, " ")
	return strings.HasPrefix(line, "--- FAIL: ") || strings.HasPrefix(line, "--- PASS: ") ||
		strings.HasPrefix(line, "--- SKIP: ")
}

// isLog reports whether line is indented as those of t.Log are: by four spaces,
// or eight where it continues a log. The stacks of a data race are indented by
// two and six.
func isLog(line string) bool {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	return indent == 4 || indent >= 8
}
