// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// answer is what happens to a write instead of what should.
type answer struct {
	committed bool // the hub carries it out
	code      int  // 0: none
	page      bool // of a gateway, instead of a Status
	after     time.Duration
	never     bool
}

// answers are those that a hub, or what is in front of it, gives to writes.
func answers() map[string]answer {
	all := map[string]answer{
		"a page with 404":           {code: http.StatusNotFound, page: true},
		"a page with 502":           {code: http.StatusBadGateway, page: true},
		"a reset":                   {},
		"a reset after the commit":  {committed: true},
		"nothing":                   {never: true},
		"nothing after the commit":  {never: true, committed: true},
		"five seconds late":         {after: 5 * time.Second, code: http.StatusGatewayTimeout},
		"committed five seconds on": {after: 5 * time.Second, code: http.StatusGatewayTimeout, committed: true},
	}
	for _, code := range []int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone,
		http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	} {
		all[http.StatusText(code)] = answer{code: code}
		all[http.StatusText(code)+" after the commit"] = answer{code: code, committed: true}
	}
	return all
}

// trouble is a transport that answers writes of some verbs in one way, for a
// while.
type trouble struct {
	next  http.RoundTripper
	verbs string
	answer

	on atomic.Bool
}

var errReset = errors.New("connection reset")

// RoundTrip implements http.RoundTripper.
func (d *trouble) RoundTrip(request *http.Request) (*http.Response, error) {
	if !d.on.Load() || !strings.Contains(d.verbs, request.Method) {
		return d.next.RoundTrip(request)
	}
	if d.after > 0 {
		<-time.After(d.after)
	}
	if d.committed {
		response, err := d.next.RoundTrip(request.WithContext(context.WithoutCancel(request.Context())))
		if err != nil {
			return nil, err
		}
		_ = response.Body.Close()
	}
	switch {
	case d.never:
		<-request.Context().Done()
		return nil, request.Context().Err()
	case d.code == 0:
		return nil, errReset
	}
	body, media := "<html>no such page</html>", "text/html"
	if !d.page {
		reasons := map[int]string{
			http.StatusUnauthorized:        "Unauthorized",
			http.StatusForbidden:           "Forbidden",
			http.StatusNotFound:            "NotFound",
			http.StatusConflict:            "Conflict",
			http.StatusGone:                "Gone",
			http.StatusUnprocessableEntity: "Invalid",
			http.StatusTooManyRequests:     "TooManyRequests",
			http.StatusInternalServerError: "InternalError",
			http.StatusServiceUnavailable:  "ServiceUnavailable",
			http.StatusGatewayTimeout:      "Timeout",
		}
		media = "application/json"
		body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + reasons[d.code] + `"}`
	}
	return &http.Response{
		StatusCode: d.code,
		Header:     http.Header{"Content-Type": {media}},
		Body:       io.NopCloser(strings.NewReader(body)),
		Request:    request,
	}, nil
}

// TestHazardAnswerToAWriteIsTakenForAVerdict: whatever the hub answers to
// writes for twelve seconds, of one verb or of all, before and after the commit,
// while a replica joins and another one leaves: no cluster ever has two owners,
// and each has one again within twenty seconds after the trouble has ended.
// -short takes the renewals of a single replica and all writes of two, and some
// of the answers to each verb, so that each answer is given to one.
func TestHazardAnswerToAWriteIsTakenForAVerdict(t *testing.T) {
	t.Parallel() // it fills the time in which those on a real hub wait
	all := answers()
	names := slices.Sorted(maps.Keys(all))
	each := len(names) / repeat.Times(len(names))
	for i, writes := range []struct{ verbs, does string }{
		{"PATCH", "renew"},
		{"POST", "found, join and take"},
		{"PUT", "take and release"},
		{"DELETE", "bury and quit"},
		{"PATCH POST PUT DELETE", "do anything"},
	} {
		for j, name := range names {
			if (i+j)%each != 0 {
				continue
			}
			for _, replicas := range []int{1, 2} {
				if replicas == 1 && writes.verbs == "DELETE" {
					continue // nothing is deleted
				}
				if testing.Short() && (replicas == 1) != (writes.verbs == "PATCH") {
					continue
				}
				t.Run(writes.does+"/"+name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testAnswer(t, replicas, writes.verbs, all[name]) })
				})
			}
		}
	}
}

func testAnswer(t *testing.T, replicas int, verbs string, how answer) {
	g := newGroup(t, 12)
	g.options.Slots = 8
	hub := &trouble{next: g.config.Transport, verbs: verbs, answer: how}
	g.config.Transport = hub
	g.start(replicas)
	defer g.stop()
	// pass lets time pass, and looks each second at all replicas at one moment.
	pass := func(seconds int, do func(second int)) (without int) {
		for second := range seconds {
			do(second)
			time.Sleep(time.Second)
			synctest.Wait()
			_, without = g.owned()
		}
		return without
	}
	nothing := func(int) {}
	require.Zero(t, pass(30, nothing))

	hub.on.Store(true)
	pass(12, func(second int) {
		switch {
		case second == 1:
			g.start(1)
		case second == 4 && replicas > 1:
			g.replicas[0].wg.Go(func() { _ = g.replicas[0].Close(context.Background()) })
		}
	})
	hub.on.Store(false)
	require.Zero(t, pass(20, nothing), "20 s after the trouble")
}

// TestAnswersThatRefuseNothing: only an answer about the condition of a write
// says that it was not met. After any other the write may have been carried out.
func TestAnswersThatRefuseNothing(t *testing.T) {
	server := fakeapi.New(fakeapi.Options{})
	hub := &trouble{next: server.Transport(), verbs: "PATCH POST PUT DELETE"}
	hub.on.Store(true)
	s, err := sharding.New(&rest.Config{Host: "http://hub", Transport: hub}, sharding.Options{
		Namespace: "default",
		Name:      "operator",
		Identity:  "a",
	})
	require.NoError(t, err)
	for name, how := range map[string]answer{
		"a page with 502": {code: http.StatusBadGateway, page: true},
		"a reset":         {},
		"401":             {code: http.StatusUnauthorized},
		"403":             {code: http.StatusForbidden},
		"422":             {code: http.StatusUnprocessableEntity},
		"500":             {code: http.StatusInternalServerError},
		"503":             {code: http.StatusServiceUnavailable},
		"504":             {code: http.StatusGatewayTimeout},
	} {
		hub.answer = how
		for _, kind := range []protocol.Kind{
			protocol.Found, protocol.Join, protocol.Renew, protocol.Take, protocol.Release,
			protocol.Bury, protocol.Quit,
		} {
			a := protocol.Action{Kind: kind, Name: "lease", UID: "uid"}
			require.Equal(t, protocol.Unknown, s.Write(t.Context(), a), "%s, kind %d", name, kind)
		}
	}
}

// TestRenewalThatFailsIsNoReasonToList: only one that is refused is. A hub that
// fails would be asked for lists by all replicas.
func TestRenewalThatFailsIsNoReasonToList(t *testing.T) {
	for code, lists := range map[int]bool{
		http.StatusForbidden:          false,
		http.StatusServiceUnavailable: false,
		http.StatusConflict:           true,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, 12)
			hub := &trouble{next: g.config.Transport, verbs: "PATCH", answer: answer{code: code}}
			g.config.Transport = hub
			a := g.start(1)[0]
			defer g.stop()
			time.Sleep(30 * time.Second)
			hub.on.Store(true)
			time.Sleep(5 * time.Second)
			hub.on.Store(false)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			require.Equal(t, lists, a.others.Load() > 1, code)
			_, without := g.owned()
			require.Zero(t, without)
		})
	}
}

// order is a transport that notes which slots are released while the replica
// still owns them.
type order struct {
	next  http.RoundTripper
	owned func(slot int) bool

	mu       sync.Mutex
	lost     map[int]bool // slots whose loss was logged
	released int
	early    []int
}

// RoundTrip implements http.RoundTripper.
func (o *order) RoundTrip(request *http.Request) (*http.Response, error) {
	_, number, slot := strings.Cut(request.URL.Path, "-slot-")
	if n, err := strconv.Atoi(number); slot && err == nil && request.Method == http.MethodPut {
		o.mu.Lock()
		owned := o.owned(n)
		if o.released++; owned || !o.lost[n] {
			o.early = append(o.early, n)
		}
		o.mu.Unlock()
	}
	return o.next.RoundTrip(request)
}

var lostSlot = regexp.MustCompile(`"msg"="Lost".* "slot"=(\d+)`)

// TestHazardReleaseIsSentBeforeTheOwnershipHasEnded: the heir may own the slot
// as soon as the hub has the release. The log, which is written once the loss is
// published, takes its time.
func TestHazardReleaseIsSentBeforeTheOwnershipHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 40)
		g.options.Slots = 4
		hub := &order{next: g.config.Transport, lost: map[int]bool{}}
		g.config.Transport = hub
		g.options.Logger = funcr.New(func(_, args string) {
			if m := lostSlot.FindStringSubmatch(args); m != nil {
				time.Sleep(10 * time.Millisecond)
				n, _ := strconv.Atoi(m[1])
				hub.mu.Lock()
				hub.lost[n] = true
				hub.mu.Unlock()
			}
		}, funcr.Options{Verbosity: 1})
		a := g.start(1)[0]
		g.waitOwned(10 * time.Second)
		hub.mu.Lock()
		hub.owned = func(slot int) bool {
			return slices.ContainsFunc(g.clusters, func(c client.ObjectKey) bool {
				_, owned := a.Lease(c)
				return owned && a.Slot(c) == slot
			})
		}
		hub.mu.Unlock()
		require.NoError(t, a.Close(t.Context()))
		a.wg.Wait()
		require.Equal(t, 4, hub.released)
		require.Empty(t, hub.early)
	})
}

// earlier is a transport that answers patches with the state before, as a
// gateway that caches does, and carries none of them out.
type earlier struct {
	next http.RoundTripper
	on   atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (e *earlier) RoundTrip(request *http.Request) (*http.Response, error) {
	if !e.on.Load() || request.Method != http.MethodPatch {
		return e.next.RoundTrip(request)
	}
	read := request.Clone(request.Context())
	read.Method, read.Body, read.ContentLength = http.MethodGet, nil, 0
	return e.next.RoundTrip(read)
}

// TestHazardSuccessThatShowsAnEarlierState: it renews nothing, so that others
// take the replica for dead.
func TestHazardSuccessThatShowsAnEarlierState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		g.options.Slots = 8
		gateway := &earlier{next: g.config.Transport}
		g.config.Transport = gateway
		g.start(1)
		g.config.Transport = gateway.next
		g.start(1)
		defer g.stop()
		time.Sleep(time.Minute)
		gateway.on.Store(true)
		var counts []int
		var without int
		for second := range 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			if counts, without = g.owned(); second == 11 {
				require.Zero(t, counts[0], "before others take it for dead")
			}
		}
		require.Zero(t, without)
		require.Equal(t, []int{0, 12}, counts)
	})
}
