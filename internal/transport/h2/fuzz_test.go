// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

const fuzzWindow = 16 << 10

// hostile opens streams 1, 3 and 5, sends the client input, and hangs up.
// Whatever the input, the requests and their bodies must end, and must not have
// exceeded the agreed limits.
func hostile(t *testing.T, input []byte) {
	bubble(t, func(b *bench) {
		calls := []*call{b.get("/"), b.get("/"), b.get("/")}
		p := b.accept()
		b.refuse.Store(&errDial) // requests that are sent again end here
		p.drain()
		p.sent(p.fr.WriteSettings())
		synctest.Wait()
		_, _ = p.nc.Write(input) // the client may hang up first
		synctest.Wait()
		require.LessOrEqual(t, b.transport.Streams(), len(calls))
		_ = p.nc.Close()
		synctest.Wait()
		for _, k := range calls {
			if k.failure() != nil {
				continue
			}
			n, err := io.Copy(io.Discard, k.resp.Body)
			require.LessOrEqual(t, n, int64(fuzzWindow))
			if err == nil && k.resp.ContentLength >= 0 && k.resp.StatusCode != 304 && k.resp.StatusCode != 204 {
				require.Equal(t, k.resp.ContentLength, n)
			}
			require.NoError(t, k.resp.Body.Close())
		}
		require.Zero(t, b.transport.Streams())
	}, func(o *h2.Options) { o.StreamWindow = fuzzWindow })
}

// drain discards everything the client sends.
func (p *peer) drain() {
	p.listening = true
	go func() {
		defer close(p.done)
		_, _ = io.Copy(io.Discard, p.nc)
	}()
}

// seeds returns complete conversations.
func seeds() [][]byte {
	var out bytes.Buffer
	fr := http2.NewFramer(&out, nil)
	fr.AllowIllegalWrites = true
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	headers := func(id uint32, last bool, fields ...string) {
		block.Reset()
		for i := 0; i < len(fields); i += 2 {
			_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: last,
		})
	}
	var all [][]byte
	for _, play := range []func(){
		func() {
			headers(1, false, ":status", "200", "content-length", "5", "trailer", "x")
			_ = fr.WriteData(1, false, []byte("he"))
			_ = fr.WriteDataPadded(1, false, []byte("llo"), make([]byte, 20))
			headers(1, true, "x", "y")
			headers(3, true, ":status", "404")
			_ = fr.WriteRSTStream(5, http2.ErrCodeInternal)
		},
		func() {
			headers(5, false, ":status", "103")
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1},
				http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0},
				http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1})
			_ = fr.WritePing(false, [8]byte{})
			_ = fr.WriteWindowUpdate(0, 5)
			_ = fr.WriteWindowUpdate(3, 5)
			_ = fr.WriteGoAway(3, http2.ErrCodeNo, []byte("bye"))
			headers(3, false, ":status", "200")
			_ = fr.WriteData(3, false, make([]byte, fuzzWindow))
			_ = fr.WriteData(3, true, []byte("x"))
		},
		func() {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}})
			_ = fr.WriteContinuation(1, false, []byte{0x5f, 0x01, 'x'})
			_ = fr.WriteContinuation(1, true, nil)
			_ = fr.WriteRawFrame(0x10, 0, 0, []byte{0, 0, 0, 1})
			_ = fr.WritePriority(3, http2.PriorityParam{Weight: 1})
			_ = fr.WriteRSTStream(3, http2.ErrCodeRefusedStream)
		},
	} {
		out.Reset()
		play()
		all = append(all, bytes.Clone(out.Bytes()))
	}
	return all
}

// FuzzBytes sends the client arbitrary bytes.
func FuzzBytes(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed)
	}
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(hostile)
}

// FuzzFrames sends the client frames with correct lengths, most of them for
// existing streams. Each frame in the input begins with its type, flags, stream
// and length.
func FuzzFrames(f *testing.F) {
	for _, seed := range seeds() {
		var script []byte
		for len(seed) >= 9 {
			n := int(seed[1])<<8 | int(seed[2])
			script = append(script, seed[3], seed[4], seed[8], byte(min(n, 255)))
			script = append(script, seed[9:9+min(n, 255)]...)
			seed = seed[9+n:]
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		var out bytes.Buffer
		for len(script) >= 4 {
			what, flags, id, n := script[0], script[1], script[2], int(script[3])
			script = script[4:]
			n = min(n, len(script))
			out.Write([]byte{0, byte(n >> 8), byte(n), what, flags})
			out.Write(binary.BigEndian.AppendUint32(nil, uint32(id%8)))
			out.Write(script[:n])
			script = script[n:]
		}
		hostile(t, out.Bytes())
	})
}
