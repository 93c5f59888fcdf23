// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	inmemory "github.com/fleetcache/fleetcache/internal/memnet"
)

// TestRandomRotationsSendNothingTwiceOrWithOldCredentials replaces the access
// at random: its authority, client certificate, token and address, one or all
// at once, back and forth, before and after the server changes, while dials
// hang or fail and the transport is shut.
//
//   - Every request ends, also without a deadline, with a response or a
//     classified *Error.
//   - No write arrives twice.
//   - A request that begins after an access is in use arrives with it, or with
//     a newer one, whose parts are never mixed with those of another.
//   - Once the server and the access agree, everything works.
func TestRandomRotationsSendNothingTwiceOrWithOldCredentials(t *testing.T) {
	for name, http2 := range map[string][2]bool{
		"http2": {true, true},
		"http1": {false, false},
		"mixed": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomRotations(t, http2, rand.Uint64()) })
		})
	}
}

// rotations is the state of the test.
type rotations struct {
	t      *testing.T
	seed   uint64
	sites  [2]*site
	s      *Transport
	dialer atomic.Int32 // how dials go: one of the constants below
	next   atomic.Int64 // id of the next request
	calm   atomic.Bool  // servers end no connections

	mu       sync.Mutex
	accesses []accessed
	used     int         // the newest access whose Use has returned
	began    map[int]int // used when the request began
	arrived  map[int]int // how often
	wrong    []string
}

// accessed is one access.
type accessed struct{ address, authority, client int }

const (
	dialsWork int32 = iota
	dialsHang
	dialsFail
	dialsTake
	dialKinds
)

func randomRotations(t *testing.T, http2 [2]bool, seed uint64) {
	r := &rotations{t: t, seed: seed, began: map[int]int{}, arrived: map[int]int{}}
	for i := range r.sites {
		r.sites[i] = newSite(t, http2[i], r.serve(i))
	}
	r.s = newTransport(t, Options{Dial: r.dial, QPS: -1})
	random := rand.New(rand.NewPCG(seed, 99))
	r.agree(random)

	var stop atomic.Bool
	var workers sync.WaitGroup
	for i := range 8 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		workers.Go(func() {
			for !stop.Load() {
				r.request(random)
				time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			}
		})
	}
	for range 3 {
		for range 20 {
			r.event(random)
			time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
		}
		r.agree(random)
	}
	stop.Store(true)
	if random.IntN(2) == 0 {
		r.s.Close()
	}
	start := time.Now()
	workers.Wait()
	require.LessOrEqual(t, time.Since(start), 2*time.Minute)
	r.s.Close()
	time.Sleep(time.Second) // lets the servers' slow handlers end

	r.mu.Lock()
	defer r.mu.Unlock()

	require.Empty(t, r.wrong, "seed %d", seed)
	require.Zero(t, r.s.Streams())
	require.Zero(t, generations(r.s))
}

func (r *rotations) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// dial goes to the server of the address.
func (r *rotations) dial(ctx context.Context, network, address string) (net.Conn, error) {
	switch r.dialer.Load() {
	case dialsHang:
		return blocked(ctx, network, address)
	case dialsFail:
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("refused")}
	case dialsTake:
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}

	i, err := strconv.Atoi(address[:1])
	if err != nil {
		return nil, err
	}
	return r.sites[i].Dial(ctx, network, address)
}

// serve returns the handler of the server at an address.
func (r *rotations) serve(address int) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		r.arrive(address, req)
		_, _ = io.Copy(io.Discard, req.Body)
		switch {
		case req.URL.Query().Has("watch"):
			streamLines(w, req, nil)
		case req.URL.Query().Has("goaway") && !r.calm.Load():
			w.Header().Set("Connection", "close")
		case req.URL.Query().Has("slow"):
			time.Sleep(30 * time.Millisecond)
		}
	}
}

func (r *rotations) arrive(address int, req *http.Request) {
	id, err := strconv.Atoi(strings.TrimPrefix(req.URL.Path, "/"))
	revision, err2 := strconv.Atoi(strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
	if err = errors.Join(err, err2); err != nil {
		r.fail("an unknown request: %v", err)
		return
	}
	client := ""
	if certs := req.TLS.PeerCertificates; len(certs) > 0 {
		client = certs[0].DNSNames[0]
	}

	r.mu.Lock()
	a, began := r.accesses[revision], r.began[id]
	r.arrived[id]++
	times := r.arrived[id]
	r.mu.Unlock()

	if revision < began {
		r.fail("request %d began with access %d and arrived with %d", id, began, revision)
	}
	if req.Method == http.MethodPost && times > 1 {
		r.fail("write %d arrived %d times", id, times)
	}
	if a.address != address || client != clientName(a.client) {
		r.fail("request %d mixes access %d (%v) with address %d, client %q", id, revision, a, address, client)
	}
}

func clientName(i int) string { return fmt.Sprintf("client-%d.example", i) }

// clients are the client certificates.
var clients = sync.OnceValue(func() (pairs [2]pemPair) {
	for i := range pairs {
		pairs[i] = newIdentity(validFrom, validUntil, clientName(i))
	}
	return pairs
})

// config returns a new access, whose token is its number.
func (r *rotations) config(a accessed) (cfg *rest.Config, revision int) {
	r.mu.Lock()
	defer r.mu.Unlock()

	revision = len(r.accesses)
	r.accesses = append(r.accesses, a)
	return &rest.Config{
		Host:        fmt.Sprintf("https://%d.example", a.address),
		BearerToken: strconv.Itoa(revision),
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: "api.example",
			CAData:     identities()[a.authority].cert,
			CertData:   clients()[a.client].cert,
			KeyData:    clients()[a.client].key,
		},
	}, revision
}

// use replaces the access, directly or after a proof.
func (r *rotations) use(random *rand.Rand, a accessed) {
	cfg, revision := r.config(a)
	c, err := r.s.Candidate(cfg, strconv.Itoa(revision))
	require.NoError(r.t, err)
	if random.IntN(3) == 0 {
		ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Millisecond)
		defer cancel()
		_, _ = c.Get(ctx, r.path(""))
	}
	if random.IntN(10) == 0 {
		c.Close()
		return
	}
	require.NoError(r.t, c.Use())
	r.inUse(revision)
}

// inUse records that an access is in use.
func (r *rotations) inUse(revision int) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.used = revision
}

// path returns the path of a new request, which begins now.
func (r *rotations) path(query string) string {
	id := int(r.next.Add(1))
	r.mu.Lock()
	defer r.mu.Unlock()

	r.began[id] = r.used
	return "/" + strconv.Itoa(id) + query
}

// agree makes everything work, and requires that it does. Meanwhile servers do
// not end connections gracefully: a write that another request's GOAWAY meets
// fails if it cannot be sent again.
func (r *rotations) agree(random *rand.Rand) {
	r.calm.Store(true)
	defer r.calm.Store(false)
	r.dialer.Store(dialsWork)
	r.s.Open()
	a := accessed{random.IntN(2), random.IntN(2), random.IntN(2)}
	steps := []func(){
		func() { r.sites[a.address].serves.Store(int32(a.authority)) },
		func() {
			cfg, revision := r.config(a)
			require.NoError(r.t, r.s.Swap(cfg, strconv.Itoa(revision)))
			r.inUse(revision)
		},
	}
	random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, step := range steps {
		step()
	}
	time.Sleep(time.Second) // requests that began before may still fail and fail those that wait for their connection
	for _, send := range []func(context.Context) error{
		r.read(""), r.write(true), r.write(false), r.watch(0), r.probe(r.s.ProbeAside), r.probe(r.s.ProbeAnew),
	} {
		require.NoError(r.t, send(r.t.Context()), "seed %d", r.seed)
	}
}

func (r *rotations) event(random *rand.Rand) {
	switch random.IntN(12) {
	case 0, 1, 2:
		r.use(random, accessed{random.IntN(2), random.IntN(2), random.IntN(2)})
	case 3: // there and back
		r.use(random, accessed{0, 0, 0})
		r.use(random, accessed{0, 1, 0})
		r.use(random, accessed{0, 0, 0})
	case 4, 5:
		r.sites[random.IntN(2)].serves.Store(int32(random.IntN(2)))
	case 6:
		r.dialer.Store(random.Int32N(dialKinds))
	case 7:
		r.s.Shut(errGiveUp)
	case 8:
		r.s.Open()
	case 9:
		r.s.CutStreams(r.s.Revision())
	case 10:
		r.sites[random.IntN(2)].Reset()
	case 11:
		reset := r.sites[random.IntN(2)].Forget(func(int) bool { return true })
		time.AfterFunc(45*time.Second, reset) // as TCP's keep-alives do
	}
}

// request sends a random request.
func (r *rotations) request(random *rand.Rand) {
	ctx := r.t.Context()
	if random.IntN(3) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(60))*time.Millisecond)
		defer cancel()
	}
	sends := []func(context.Context) error{
		r.read(""), r.read("?slow"), r.read("?goaway"),
		r.write(true), r.write(false),
		r.watch(time.Duration(random.IntN(100)) * time.Millisecond),
		r.probe(r.s.Probe), r.probe(r.s.ProbeAside), r.probe(r.s.ProbeAnew), r.probe(r.over),
	}
	err := sends[random.IntN(len(sends))](ctx)
	if err == nil {
		return
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Class == Unknown {
		err = unredacted(errors.Unwrap(e))
		r.fail("%T: %v: %T %v", err, e, err, err)
	}
}

func (r *rotations) read(query string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, _, err := fetch(ctx, r.s, r.path(query))
		return err
	}
}

// write sends a body, which net/http can or cannot get again.
func (r *rotations) write(again bool) func(context.Context) error {
	return func(ctx context.Context) error {
		var sent io.Reader = strings.NewReader("body")
		if !again {
			sent = io.NopCloser(sent)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.s.URL()+r.path("?slow"), sent)
		if err != nil {
			return err
		}
		resp, err := r.s.Client().Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
}

// watch keeps a watch for some time.
func (r *rotations) watch(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		resp, err := get(ctx, r.s, r.path("?watch=true"))
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		_, err = io.ReadFull(resp.Body, make([]byte, len(line)))
		time.Sleep(d)
		return err
	}
}

func (r *rotations) probe(ask func(context.Context, string) (Proof, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := ask(ctx, r.path(""))
		return err
	}
}

// identities are those of the servers, each of its own authority.
var identities = sync.OnceValue(func() [2]pemPair {
	return [2]pemPair{identity(), newIdentity(validFrom, validUntil, "api.example")}
})

// site is a server whose certificate can be replaced.
type site struct {
	*inmemory.Listener

	serves atomic.Int32 // index of the identity
}

// newSite serves handler in the current bubble until the test ends.
func newSite(t *testing.T, http2 bool, handler http.HandlerFunc) *site {
	t.Helper()
	l := &site{Listener: inmemory.Listen()}
	var pairs [2]tls.Certificate
	for i, own := range identities() {
		pair, err := tls.X509KeyPair(own.cert, own.key)
		require.NoError(t, err)
		pairs[i] = pair
	}
	server := &http.Server{
		Handler:   handler,
		Protocols: new(http.Protocols),
		TLSConfig: &tls.Config{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return &pairs[l.serves.Load()], nil
			},
			ClientAuth: tls.RequestClientCert,
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(http2)
	var served sync.WaitGroup
	served.Go(func() { _ = server.ServeTLS(l, "", "") })
	t.Cleanup(func() {
		_ = server.Close()
		l.Reset()
		served.Wait()
	})
	return l
}
