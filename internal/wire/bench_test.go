// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/wire"
	"github.com/fleetcache/fleetcache/internal/wire/wiretest"
)

func BenchmarkScanAppendPod(b *testing.B) {
	pod := wiretest.Pod(3)
	var dst []byte
	b.SetBytes(int64(len(pod)))
	b.ReportAllocs()
	for b.Loop() {
		it, err := wire.Scan(pod)
		if err != nil {
			b.Fatal(err)
		}
		dst = strip(dst[:0], &it)
	}
	b.ReportMetric(float64(len(pod)), "B/in")
	b.ReportMetric(float64(len(dst)), "B/out")
}

func BenchmarkFrames(b *testing.B) {
	b.Run("split", func(b *testing.B) { benchmarkFrames(b, false) })
	b.Run("scan", func(b *testing.B) { benchmarkFrames(b, true) })
}

func benchmarkFrames(b *testing.B, scan bool) {
	var stream []byte
	const frames = 200
	for i := range frames {
		stream = append(append(append(stream, `{"type":"ADDED","object":`...), wiretest.Pod(i)...), "}\n"...)
	}
	b.SetBytes(int64(len(stream) / frames))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		// One iteration reads one frame. At the end of the stream the reader
		// starts over.
		b.StopTimer()
		r := wire.NewFrameReader(bytes.NewReader(stream), wire.Limits{})
		b.StartTimer()
		for {
			if _, err := r.Next(); err != nil {
				require.ErrorIs(b, err, io.EOF)
				break
			}
			if scan {
				_, err := r.Scan()
				require.NoError(b, err)
			}
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/frame")
}

func BenchmarkList(b *testing.B) {
	b.Run("split", func(b *testing.B) { benchmarkList(b, false) })
	b.Run("scan", func(b *testing.B) { benchmarkList(b, true) })
}

func benchmarkList(b *testing.B, scan bool) {
	page := []byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`)
	const items = 500
	for i := range items {
		if i > 0 {
			page = append(page, ',')
		}
		page = append(page, wiretest.Pod(i)...)
	}
	page = append(page, "]}\n"...)
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		l := wire.NewListReader(bytes.NewReader(page), wire.Limits{})
		for {
			if _, err := l.Next(); err != nil {
				require.ErrorIs(b, err, io.EOF)
				break
			}
			if scan {
				_, err := l.Scan()
				require.NoError(b, err)
			}
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/item")
}
