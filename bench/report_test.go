// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReportSaysWhichBoundsHold(t *testing.T) {
	var out bytes.Buffer
	r := &report{each: asJSON(&out)}
	r.add("goroutines", ours, 2, "goroutines", atMost(2))
	r.add("goroutines", clientGo, 7, "goroutines", nil)
	r.add("ratio", crTyped, 9.99, "times", atLeast(10))
	require.Equal(t, 1, r.broken())

	var rows []map[string]any
	for line := range strings.Lines(out.String()) {
		var row map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	require.Equal(t, []map[string]any{
		{"work": "goroutines", "subject": "fleetcache", "value": 2.0, "unit": "goroutines", "bound": "<= 2",
			"ok": true},
		{"work": "goroutines", "subject": "client-go/dynamic", "value": 7.0, "unit": "goroutines"},
		{"work": "ratio", "subject": "controller-runtime/typed", "value": 9.99, "unit": "times", "bound": ">= 10",
			"ok": false},
	}, rows)

	var table bytes.Buffer
	require.NoError(t, r.table(&table))
	require.Equal(t, 1, strings.Count(table.String(), "MISSED"))
}

func TestNumbersAreShownWithThreeDigits(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 2: "2", 0.01234: "0.012", 1.2345: "1.23", 12.345: "12.3",
		123.45: "123", -0.5: "-0.5", 100: "100"} {
		require.Equal(t, want, number(value))
	}
}

func TestMedianIsNoOutlier(t *testing.T) {
	require.Equal(t, 3, median([]int{1000, 3, 1}))
}

func TestEveryComparisonHasItsReadings(t *testing.T) {
	readings := (&bookshelf{}).readings()
	for _, c := range comparisons {
		require.Contains(t, readings, c.ours)
		require.Contains(t, readings, c.peer)
	}
}
