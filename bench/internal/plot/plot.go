// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package plot draws lines as SVG. The drawings have no background, and colors
// that can be read on a light and on a dark one.
package plot

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Series is one line.
type Series struct {
	Name string
	X, Y []float64
}

// Chart is a drawing with logarithmic axes.
type Chart struct {
	Title, X, Y string
	Series      []Series
}

// Sizes of the drawing, in pixels.
const (
	width, height = 860, 460
	left, top     = 76, 44
	right, bottom = 600, 400
	lineHeight    = 22
)

// colors are distinguishable with color blindness (Okabe and Ito), with a shade
// for each background.
var colors = [...]struct{ light, dark string }{
	{"#0072b2", "#56b4e9"},
	{"#d55e00", "#ff8c42"},
	{"#009e73", "#2fd6a4"},
	{"#aa4499", "#e58ac9"},
	{"#8a6d00", "#f0e442"},
	{"#555555", "#bbbbbb"},
	{"#882255", "#ff9ebb"},
	{"#332288", "#a79bff"},
}

// axis maps values to pixels.
type axis struct {
	from, to   float64 // decimal logarithms
	begin, end float64 // pixels
}

func (a axis) at(value float64) float64 {
	return a.begin + (math.Log10(value)-a.from)/(a.to-a.from)*(a.end-a.begin)
}

// ticks are the values at which the axis has a number: 1, 2 and 5 times powers
// of ten.
func (a axis) ticks() []float64 {
	var values []float64
	for power := math.Floor(a.from); power <= a.to; power++ {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * math.Pow(10, power)
			if l := math.Log10(v); l >= a.from-1e-9 && l <= a.to+1e-9 {
				values = append(values, v)
			}
		}
	}
	return values
}

func newAxis(begin, end float64, values []float64) axis {
	least, most := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v > 0 {
			least, most = min(least, v), max(most, v)
		}
	}
	a := axis{begin: begin, end: end, from: math.Log10(least) - 0.1, to: math.Log10(most) + 0.1}
	if math.IsInf(least, 1) {
		a.from, a.to = 0, 1
	}
	return a
}

// SVG draws the chart. Values that are not positive have no place in it.
func (c Chart) SVG() []byte {
	var xs, ys []float64
	for _, s := range c.Series {
		xs, ys = append(xs, s.X...), append(ys, s.Y...)
	}
	x, y := newAxis(left, right, xs), newAxis(bottom, top, ys)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n",
		width, height, escape(c.Title))
	b.WriteString(style())
	text(&b, left, top-20, "title", c.Title)
	for _, v := range x.ticks() {
		at := x.at(v)
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %d V%d"/>`+"\n", at, top, bottom)
		text(&b, at, bottom+lineHeight, "tick middle", number(v))
	}
	for _, v := range y.ticks() {
		at := y.at(v)
		fmt.Fprintf(&b, `<path class="grid" d="M%d %.1f H%d"/>`+"\n", left, at, right)
		text(&b, left-8, at+4, "tick end", number(v))
	}
	text(&b, (left+right)/2, height-12, "tick middle", c.X)
	text(&b, left, top-4, "tick", c.Y)
	for i, s := range c.Series {
		s.draw(&b, i, x, y)
	}
	b.WriteString("</svg>\n")

	return []byte(b.String())
}

// draw draws a line with its points and its name in the legend.
func (s Series) draw(b *strings.Builder, number int, x, y axis) {
	class := fmt.Sprintf("s%d", number%len(colors))
	var path []string
	for i := range s.X {
		if s.X[i] <= 0 || s.Y[i] <= 0 {
			continue
		}
		at := fmt.Sprintf("%.1f %.1f", x.at(s.X[i]), y.at(s.Y[i]))
		path = append(path, at)
		cx, cy, _ := strings.Cut(at, " ")
		fmt.Fprintf(b, `<circle class="%s dot" cx="%s" cy="%s" r="3.5"/>`+"\n", class, cx, cy)
	}
	if len(path) > 0 {
		fmt.Fprintf(b, `<path class="%s line" d="M%s"/>`+"\n", class, strings.Join(path, " L"))
	}

	at := float64(top + lineHeight*number)
	fmt.Fprintf(b, `<path class="%s line" d="M%d %.1f h18"/>`+"\n", class, right+16, at)
	text(b, right+40, at+4, "tick", s.Name)
}

func style() string {
	var light, dark strings.Builder
	for i, c := range colors {
		fmt.Fprintf(&light, ".s%d{--c:%s}", i, c.light)
		fmt.Fprintf(&dark, ".s%d{--c:%s}", i, c.dark)
	}
	return "<style>text{font:12px sans-serif;fill:#333}.title{font-size:15px;font-weight:bold}" +
		".middle{text-anchor:middle}.end{text-anchor:end}.grid{stroke:#888;stroke-opacity:.3;fill:none}" +
		".line{stroke:var(--c);stroke-width:2;fill:none}.dot{fill:var(--c)}" + light.String() +
		"@media (prefers-color-scheme:dark){text{fill:#ddd}" + dark.String() + "}</style>\n"
}

func text(b *strings.Builder, x, y float64, class, s string) {
	fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, escape(s))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder cannot fail
	return b.String()
}

// number writes thousands with separators.
func number(v float64) string {
	s := fmt.Sprintf("%g", v)
	if v < 1e4 {
		return s
	}
	s = fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
