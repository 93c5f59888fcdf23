// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// bench is a transport in a bubble of virtual time. Its connections lead to
// peers that the test plays by hand.
type bench struct {
	*testing.T

	transport *h2.Transport
	peers     chan *peer // the dialed peers, in order
	refuse    atomic.Pointer[error]
	stuck     atomic.Bool // dials hang until they are given up
	all       []*peer
	calls     sync.WaitGroup
}

// bubble runs a test with a bench. Whatever the test leaves behind is ended,
// and must end.
func bubble(t *testing.T, run func(b *bench), configure ...func(*h2.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, peers: make(chan *peer, 100)}
		opts := h2.Options{Dial: b.dial}
		for _, configure := range configure {
			configure(&opts)
		}
		b.transport = h2.New(opts)
		defer func() {
			b.transport.Close()
			close(b.peers)
			for p := range b.peers {
				p.end()
			}
			for _, p := range b.all {
				p.end()
			}
			b.calls.Wait()
		}()
		run(b)
	})
}

func (b *bench) dial(ctx context.Context, addr string) (net.Conn, error) {
	if b.stuck.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := b.refuse.Load(); err != nil {
		return nil, *err
	}
	ours, theirs := net.Pipe()
	p := newPeer(b, theirs, addr)
	b.peers <- p
	return &client{ours, p}, nil
}

// client is the client's side of a connection.
type client struct {
	net.Conn

	p *peer
}

func (c *client) SetWriteDeadline(at time.Time) error {
	c.p.limited.Store(!at.IsZero())
	return c.Conn.SetWriteDeadline(at)
}

// accept returns the next dialed peer, before it has sent anything.
func (b *bench) accept() *peer {
	b.Helper()
	synctest.Wait()
	select {
	case p := <-b.peers:
		b.all = append(b.all, p)
		return p
	default:
		require.FailNow(b.T, "nothing was dialed")
		return nil
	}
}

// none checks that no connection is being dialed.
func (b *bench) none() {
	b.Helper()
	synctest.Wait()
	require.Empty(b.T, b.peers)
}

// greeted returns the next peer after it has exchanged settings with the
// client.
func (b *bench) greeted(settings ...http2.Setting) *peer {
	b.Helper()
	p := b.accept()
	p.greet(settings...)
	return p
}

// call is a request in progress.
type call struct {
	b      *bench
	cancel context.CancelFunc
	done   chan struct{} // closed when the fields below are set
	resp   *http.Response
	err    error
}

// get sends a request.
func (b *bench) get(path string, header ...string) *call {
	return b.send("https://peer.test"+path, header...)
}

func (b *bench) send(url string, header ...string) *call {
	ctx, cancel := context.WithCancel(b.Context())
	k := &call{b: b, cancel: cancel, done: make(chan struct{})}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(b.T, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	b.calls.Go(func() {
		defer close(k.done)
		k.resp, k.err = b.transport.RoundTrip(req)
	})
	return k
}

// waiting checks that the request has no response yet.
func (k *call) waiting() {
	k.b.Helper()
	synctest.Wait()
	select {
	case <-k.done:
		require.FailNow(k.b.T, "the request has ended", "%v", k.err)
	default:
	}
}

// response returns the response, which must have arrived.
func (k *call) response() *http.Response {
	k.b.Helper()
	require.NoError(k.b.T, k.failure())
	return k.resp
}

// failure returns the error of the request, which must have failed.
func (k *call) failure() error {
	k.b.Helper()
	synctest.Wait()
	select {
	case <-k.done:
		return k.err
	default:
		require.FailNow(k.b.T, "the request is waiting")
		return nil
	}
}

// body reads the whole body.
func (k *call) body() (string, error) {
	k.b.Helper()
	body, err := io.ReadAll(k.response().Body)
	return string(body), err
}

// reading is a Read in progress.
type reading struct {
	b    *bench
	done chan struct{}
	n    int
	err  error
}

func (k *call) read(p []byte) *reading {
	r := &reading{b: k.b, done: make(chan struct{})}
	body := k.response().Body
	k.b.calls.Go(func() {
		defer close(r.done)
		r.n, r.err = body.Read(p)
	})
	return r
}

// result returns the result of the Read, which must have ended.
func (r *reading) result() (int, error) {
	r.b.Helper()
	synctest.Wait()
	select {
	case <-r.done:
		return r.n, r.err
	default:
		require.FailNow(r.b.T, "the reader is waiting")
		return 0, nil
	}
}

func (r *reading) waiting() {
	r.b.Helper()
	synctest.Wait()
	select {
	case <-r.done:
		require.FailNow(r.b.T, "the read has ended", "%d, %v", r.n, r.err)
	default:
	}
}

// frame is a frame that a peer has received.
type frame struct {
	http2.FrameHeader

	fields   map[string]string // of HEADERS
	secret   []string          // names of HEADERS that are marked as sensitive
	settings map[http2.SettingID]uint32
	code     http2.ErrCode // of RST_STREAM and GOAWAY
	inc      uint32        // of WINDOW_UPDATE
	data     [8]byte       // of PING
}

// peer is the server's side of a connection. It keeps the frames it receives
// until the test asks for them, and sends frames at once.
type peer struct {
	t     *testing.T
	calls *sync.WaitGroup // for the goroutines of the peer
	addr  string          // the address that was dialed
	nc    net.Conn
	fr    *http2.Framer
	got   chan frame
	done  chan struct{} // closed when the client has hung up

	listening bool          // a goroutine runs that closes done
	deaf      atomic.Bool   // the peer no longer reads
	limited   atomic.Bool   // the client has a write deadline
	gone      chan struct{} // closed at the end of the test

	enc   *hpack.Encoder
	dec   *hpack.Decoder
	block bytes.Buffer
}

func newPeer(b *bench, nc net.Conn, addr string) *peer {
	p := &peer{
		t: b.T, calls: &b.calls, addr: addr, nc: nc, fr: http2.NewFramer(nc, nc), got: make(chan frame, 100_000),
		done: make(chan struct{}), gone: make(chan struct{}),
	}
	p.fr.AllowIllegalWrites = true
	p.enc = hpack.NewEncoder(&p.block)
	p.dec = hpack.NewDecoder(4096, nil)
	return p
}

// end hangs up and waits for the peer's goroutine, if it has one.
func (p *peer) end() {
	_ = p.nc.Close()
	close(p.gone)
	if p.listening {
		<-p.done
	}
}

// listen starts reading what the client sends.
func (p *peer) listen() {
	p.listening = true
	go func() {
		defer close(p.done)
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(p.nc, preface); err != nil || string(preface) != http2.ClientPreface {
			return
		}
		fr := http2.NewFramer(p.nc, p.nc)
		fr.ReadMetaHeaders = p.dec
		for p.receive(fr) == nil && !p.deaf.Load() {
		}
		if p.deaf.Load() {
			<-p.gone
		}
	}()
}

func (p *peer) receive(fr *http2.Framer) error {
	f, err := fr.ReadFrame()
	if err != nil {
		return err
	}
	g := frame{FrameHeader: f.Header()}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		g.fields = map[string]string{}
		for _, field := range f.Fields {
			g.fields[field.Name] += field.Value
			if field.Sensitive {
				g.secret = append(g.secret, field.Name)
			}
		}
	case *http2.SettingsFrame:
		g.settings = map[http2.SettingID]uint32{}
		_ = f.ForeachSetting(func(s http2.Setting) error { g.settings[s.ID] = s.Val; return nil })
	case *http2.RSTStreamFrame:
		g.code = f.ErrCode
	case *http2.GoAwayFrame:
		g.code = f.ErrCode
	case *http2.WindowUpdateFrame:
		g.inc = f.Increment
	case *http2.PingFrame:
		g.data = f.Data
	}
	p.got <- g
	return nil
}

// greet exchanges settings.
func (p *peer) greet(settings ...http2.Setting) {
	p.t.Helper()
	p.listen()
	p.sent(p.fr.WriteSettings(settings...))
	require.Equal(p.t, http2.FrameSettings, p.next().Type)
	require.Equal(p.t, http2.FrameWindowUpdate, p.next().Type)
	require.True(p.t, p.next().Flags.Has(http2.FlagSettingsAck))
}

// sent checks that a frame was sent.
func (p *peer) sent(err error) {
	p.t.Helper()
	require.NoError(p.t, err)
}

// next returns the client's next frame, which must have been sent.
func (p *peer) next() frame {
	p.t.Helper()
	synctest.Wait()
	select {
	case f := <-p.got:
		return f
	default:
		require.FailNow(p.t, "the client has sent nothing")
		return frame{}
	}
}

// expect returns the next frame, which must be of the given type.
func (p *peer) expect(what http2.FrameType) frame {
	p.t.Helper()
	f := p.next()
	require.Equal(p.t, what, f.Type, "%+v", f)
	return f
}

// quiet checks that the client has sent nothing else.
func (p *peer) quiet() {
	p.t.Helper()
	synctest.Wait()
	select {
	case f := <-p.got:
		require.FailNow(p.t, "unexpected frame", "%+v", f)
	default:
	}
}

// closed checks that the client has hung up, after a GOAWAY with code.
func (p *peer) closed(code http2.ErrCode) {
	p.t.Helper()
	synctest.Wait()
	var last frame
	for range len(p.got) {
		last = <-p.got
	}
	require.Equal(p.t, http2.FrameGoAway, last.Type, "%+v", last)
	require.Equal(p.t, code, last.code)
	<-p.done
}

// request returns the number and headers of the next stream that the client
// opens.
func (p *peer) request() (uint32, map[string]string) {
	p.t.Helper()
	f := p.expect(http2.FrameHeaders)
	require.True(p.t, f.Flags.Has(http2.FlagHeadersEndStream))
	return f.StreamID, f.fields
}

// encode returns a header block.
func (p *peer) encode(fields ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		require.NoError(p.t, p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(p.block.Bytes())
}

// headers sends headers, with more to follow.
func (p *peer) headers(id uint32, fields ...string) {
	p.t.Helper()
	p.sent(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(fields...),
		EndHeaders: true}))
}

// last sends headers that end the stream.
func (p *peer) last(id uint32, fields ...string) {
	p.t.Helper()
	p.sent(p.fr.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: p.encode(fields...), EndHeaders: true, EndStream: true,
	}))
}

// data sends a DATA frame.
func (p *peer) data(id uint32, last bool, data string) {
	p.t.Helper()
	p.sent(p.fr.WriteData(id, last, []byte(data)))
}

// raw sends a frame exactly as given.
func (p *peer) raw(what http2.FrameType, flags http2.Flags, id uint32, payload ...byte) {
	p.t.Helper()
	p.sent(p.fr.WriteRawFrame(what, flags, id, payload))
}

// answered opens a stream and answers it with status 200, with more to follow.
func (b *bench) answered(p *peer) (*call, uint32) {
	b.Helper()
	k := b.get("/")
	id, _ := p.request()
	p.headers(id, ":status", "200")
	require.Equal(b.T, http.StatusOK, k.response().StatusCode)
	return k, id
}

var errDial = errors.New("no route")
