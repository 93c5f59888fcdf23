// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package plot_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/bench/internal/plot"
)

// elements parses a drawing.
func elements(t *testing.T, svg []byte) []xml.StartElement {
	t.Helper()
	var all []xml.StartElement
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			all = append(all, e)
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func TestAPointIsWhereItsValuesAre(t *testing.T) {
	svg := plot.Chart{
		Title:  "Memory < 1 & more",
		Series: []plot.Series{{Name: "a", X: []float64{1, 10, 100}, Y: []float64{5, 50, 500}}},
	}.SVG()
	var x, y []float64
	for _, e := range elements(t, svg) {
		if e.Name.Local != "circle" {
			continue
		}
		cx, err := strconv.ParseFloat(attribute(e, "cx"), 64)
		require.NoError(t, err)
		cy, err := strconv.ParseFloat(attribute(e, "cy"), 64)
		require.NoError(t, err)
		x, y = append(x, cx), append(y, cy)
	}
	require.Len(t, x, 3)
	require.InDelta(t, x[1]-x[0], x[2]-x[1], 0.2, "the axes are logarithmic")
	require.InDelta(t, y[0]-y[1], y[1]-y[2], 0.2)
	require.Greater(t, x[1], x[0])
	require.Less(t, y[1], y[0], "more is higher")
}

func TestEverySeriesIsNamedAndReadableInTheDark(t *testing.T) {
	c := plot.Chart{}
	for i := range 8 {
		c.Series = append(c.Series, plot.Series{Name: "subject-" + strconv.Itoa(i), X: []float64{1}, Y: []float64{1}})
	}
	svg := string(c.SVG())
	for i := range 8 {
		require.Contains(t, svg, "subject-"+strconv.Itoa(i))
		require.Equal(t, 2, strings.Count(svg, ".s"+strconv.Itoa(i)+"{"), "a color for each background")
	}
	require.Contains(t, svg, "prefers-color-scheme:dark")
}

func TestWhatHasNoPlaceOnLogarithmicAxesIsLeftOut(t *testing.T) {
	for _, c := range []plot.Chart{
		{},
		{Series: []plot.Series{{Name: "a", X: []float64{0, 10}, Y: []float64{1, -2}}}},
	} {
		svg := string(c.SVG())
		elements(t, c.SVG())
		require.NotContains(t, svg, "NaN")
		require.NotContains(t, svg, "Inf")
		require.NotContains(t, svg, "circle")
	}
}
