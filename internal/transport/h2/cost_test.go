// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// answering is an HTTP/2 server that answers every request with empty headers
// and leaves the stream open. It stores nothing, so that only the client shows
// up in the measurements of its process.
type answering struct {
	net.Listener

	served sync.WaitGroup
}

func answer(t testing.TB) *answering {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &answering{Listener: l}
	s.served.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			s.served.Go(func() { serveAnswers(nc) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.served.Wait()
	})
	return s
}

func serveAnswers(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	fr := http2.NewFramer(nc, nc)
	if _, err := io.CopyN(io.Discard, nc, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	if err := fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100}); err != nil {
		return
	}
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		if h, ok := f.(*http2.HeadersFrame); ok {
			err = fr.WriteHeaders(http2.HeadersFrameParam{
				StreamID: h.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true, // :status: 200
			})
		} else if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			err = fr.WriteSettingsAck()
		}
		if err != nil {
			return
		}
	}
}

func (s *answering) dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", s.Addr().String())
}

// ours returns the h2 client; theirs returns net/http's, for comparison.
func (s *answering) ours(t testing.TB) (client *http.Client, url string) {
	transport := h2.New(h2.Options{Dial: s.dial})
	t.Cleanup(transport.Close)
	return &http.Client{Transport: transport}, "https://" + s.Addr().String()
}

func (s *answering) theirs(t testing.TB) (client *http.Client, url string) {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, "http://" + s.Addr().String()
}

// cost is the cost of one idle stream, including its share of the connection
// and the goroutine of the caller.
type cost struct{ heap, stack, goroutines float64 }

// measureIdle opens n streams, each read by a goroutine that waits for data,
// and returns their cost.
func measureIdle(t testing.TB, client *http.Client, url string, n int) cost {
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	before := memoryInUse()
	opened := make(chan error)
	for range n {
		readers.Go(func() { readIdle(ctx, client, url, opened) })
		require.NoError(t, <-opened) // one at a time: net/http dials for each of several concurrent first requests
	}
	return memoryInUse().since(before, n)
}

// readIdle retains what a watch retains: a context of its own and the body.
func readIdle(ctx context.Context, client *http.Client, url string, opened chan<- error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := openBody(ctx, client, url)
	opened <- err
	if err != nil {
		return
	}
	var p [1]byte
	_, _ = body.Read(p[:])
	_ = body.Close()
}

func openBody(ctx context.Context, client *http.Client, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/pods?watch=1", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", "Bearer 0123456789")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

type memory struct {
	runtime.MemStats

	goroutines int
}

// memoryInUse returns the memory in use after everything that can be freed or
// shrunk has been.
func memoryInUse() memory {
	var m memory
	for range 4 { // stacks shrink by half with each collection; pools need two
		runtime.GC()
	}
	runtime.ReadMemStats(&m.MemStats)
	m.goroutines = runtime.NumGoroutine()
	return m
}

func (m memory) since(before memory, n int) cost {
	return cost{
		heap:       float64(int64(m.HeapAlloc)-int64(before.HeapAlloc)) / float64(n),
		stack:      float64(int64(m.StackInuse)-int64(before.StackInuse)) / float64(n),
		goroutines: float64(m.goroutines-before.goroutines) / float64(n),
	}
}

func (c cost) String() string {
	return fmt.Sprintf("%.0f B heap, %.0f B stack, %.2f goroutines", c.heap, c.stack, c.goroutines)
}

func TestIdleStreamIsSmall(t *testing.T) {
	const n = 2000
	s := answer(t)
	var got [2]cost
	for i, client := range []func(testing.TB) (*http.Client, string){s.ours, s.theirs} {
		client, url := client(t)
		got[i] = measureIdle(t, client, url, n)
		t.Log(got[i])
	}
	require.Less(t, got[0].goroutines, 1.1, "the reader's own, and some for the connections of both sides")
	require.Less(t, got[0].heap+got[0].stack, 0.6*(got[1].heap+got[1].stack))
}

func TestTransportKeepsLittleOfAnIdleStream(t *testing.T) {
	const n = 2000
	s := answer(t)
	client, url := s.ours(t)
	ctxs := make([]context.Context, n)
	for i := range ctxs {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		defer context.AfterFunc(ctx, func() {})() // the cost of the first callback of a context is the caller's
		ctxs[i] = ctx
	}
	bodies := make([]io.ReadCloser, n)
	before := memoryInUse()
	for i := range bodies {
		var err error
		bodies[i], err = openBody(ctxs[i], client, url)
		require.NoError(t, err)
	}
	got := memoryInUse().since(before, n)
	t.Log(got)
	require.Less(t, got.goroutines, 0.05)
	require.Less(t, got.heap, 600.0)

	// A goroutine that waits in Read takes no more stack than one that waits on
	// a channel. Both had a deeper stack before, as does a goroutine that has
	// sent a request.
	release := make(chan struct{})
	channel := measureParked(n, func(int) { <-release })
	close(release)
	read := measureParked(n, func(i int) { _, _ = bodies[i].Read(make([]byte, 1)) })
	t.Log(channel, read)
	require.Less(t, read.stack, stackSlack*channel.stack)
	for _, body := range bodies {
		require.NoError(t, body.Close())
	}
}

// measureParked returns the cost of a goroutine that waits in park.
func measureParked(n int, park func(i int)) cost {
	var ready sync.WaitGroup
	before := memoryInUse()
	for i := range n {
		ready.Add(1)
		go func() {
			deepen(20)
			ready.Done()
			park(i)
		}()
	}
	ready.Wait()
	return memoryInUse().since(before, n)
}

// deepen uses about 10 KiB of stack.
func deepen(n int) byte {
	var frame [512]byte
	if n > 0 {
		frame[n] = deepen(n - 1)
	}
	return frame[n/2]
}
