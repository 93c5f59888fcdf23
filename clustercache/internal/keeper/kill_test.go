// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/clustercache/internal/keeper"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

var kills = flag.Int("persist.kills", 20, "how many processes TestKilledWhileWritingNeverLeavesAWrongObject kills")

// The environment of a process that is to be killed.
const (
	victimServer = "FLEETCACHE_KEEPER_VICTIM_SERVER"
	victimFile   = "FLEETCACHE_KEEPER_VICTIM_FILE"
)

// report is what a victim shows.
type report struct {
	Version  string            `json:"version"`
	Objects  map[string]string `json:"objects"`
	Restored bool              `json:"restored"`
}

// victim caches and writes all the time, and reports what it shows.
func victim(server, file string) {
	disk, err := bolt.Open(file, bolt.Options{OnDamage: func(why error) { log.Fatal("damaged: ", why) }})
	if err != nil {
		log.Fatal(err)
	}
	endpoint := informerpool.Endpoint{
		Client: http.DefaultClient,
		URL:    server,
		Epoch:  "a",
	}
	o := informerpool.Options{
		Source: informerpool.FromREST(func(context.Context, types.NamespacedName) (informerpool.Endpoint, error) {
			return endpoint, nil
		}),
	}
	k, err := keeper.New(keeper.Config{
		Options: persist.Options{
			Store:          disk,
			Interval:       2 * time.Millisecond,
			BytesPerSecond: -1,
		},
		Informers: &o,
		Identity:  identity,
		Logger:    o.Logger,
	})
	if err != nil {
		log.Fatal(err)
	}
	o.Snapshots = k
	pool, err := informerpool.New(o)
	if err != nil {
		log.Fatal(err)
	}
	k.Open()
	go k.Run(context.Background(), pool)
	lease, err := pool.Acquire(context.Background(), pooltest.Everything)
	if err == nil {
		err = lease.WaitForSync(context.Background())
	}
	for err == nil {
		err = show(lease, pool.Totals().Restores > 0)
		time.Sleep(10 * time.Millisecond)
	}
	log.Fatal(err)
}

// show prints what a lease lists.
func show(l *informerpool.Lease, restored bool) error {
	objects, version, err := l.List(informerpool.Query{})
	if err != nil {
		return err
	}
	r := report{
		Version:  version,
		Restored: restored,
		Objects:  map[string]string{},
	}
	for _, o := range objects {
		var w pooltest.Widget
		if err := o.Into(&w); err != nil {
			return err
		}
		r.Objects[w.Name] = shown(w.UID, w.ResourceVersion, w.Spec.Value)
	}
	line, err := json.Marshal(r)
	fmt.Printf("%s\n", line)

	return err
}

func shown(uid types.UID, version string, value int) string {
	return fmt.Sprintf("%s@%s=%d", uid, version, value)
}

// busy is a server whose objects change all the time, with a log of all
// changes, and an HTTP API.
type busy struct {
	*pooltest.Server

	mu     sync.Mutex
	log    []pooltest.Change // since the first of the states
	states []state
}

// state is what a server has at a moment.
type state struct {
	objects map[string]string
	version uint64
	changes int // length of the log at that moment
}

const (
	statePace  = 500 // changes between two states
	maxChanges = 100 * statePace
)

// change makes one change.
func (b *busy) change(r *rand.Rand) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := fmt.Sprint("w", r.IntN(150))
	c := pooltest.Change{Object: pooltest.Object{Name: name}}
	if r.IntN(3) == 0 {
		b.Delete("ns", name)
	} else {
		b.Put("ns", name, r.IntN(1_000_000))
	}
	b.Set(func(s *pooltest.Server) {
		c.Version = s.Version
		if o, exists := s.Objects[types.NamespacedName{Namespace: "ns", Name: name}]; exists {
			c.Object, c.Frame = o, "PUT"
		}
	})
	b.log = append(b.log, c)
	if len(b.log)%statePace == 0 {
		last := b.states[len(b.states)-1]
		b.states = append(b.states, state{
			objects: replay(last, b.log, c.Version),
			version: c.Version,
			changes: len(b.log),
		})
	}
	if len(b.log) < 2*maxChanges {
		return
	}

	b.log = slices.Clone(b.log[maxChanges:])
	b.states = slices.DeleteFunc(b.states, func(s state) bool { return s.changes < maxChanges })
	for i := range b.states {
		b.states[i].changes -= maxChanges
	}
}

// replay returns the objects that a server has at a version, no earlier than a
// state.
func replay(from state, changes []pooltest.Change, version uint64) map[string]string {
	out := maps.Clone(from.objects)
	for _, c := range changes[from.changes:] {
		switch o := c.Object; {
		case c.Version > version:
			return out
		case c.Frame == "":
			delete(out, o.Name)
		default:
			out[o.Name] = shown(types.UID(o.UID), strconv.FormatUint(o.Version, 10), o.Value)
		}
	}
	return out
}

// at returns the objects that the server had at a version.
func (b *busy) at(t *testing.T, version string) map[string]string {
	t.Helper()
	rv, err := strconv.ParseUint(version, 10, 64)
	require.NoError(t, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range slices.Backward(b.states) {
		if s.version <= rv {
			return replay(s, b.log, rv)
		}
	}
	require.Fail(t, "too old to know", version)
	return nil
}

// ServeHTTP implements http.Handler.
func (b *busy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	o := metav1.ListOptions{
		ResourceVersion: q.Get("resourceVersion"),
		FieldSelector:   q.Get("fieldSelector"),
		Continue:        q.Get("continue"),
	}
	if q.Has("sendInitialEvents") {
		o.SendInitialEvents = new(true)
	}
	o.Limit, _ = strconv.ParseInt(q.Get("limit"), 10, 64)
	open := b.List
	if q.Get("watch") == "true" {
		open = b.Watch
	}
	body, err := open(r.Context(), informerpool.Request{
		Key:     pooltest.Everything,
		Epoch:   "a",
		Options: o,
	})
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := apierrors.NewInternalError(err).ErrStatus
		if known := (*apierrors.StatusError)(nil); errors.As(err, &known) {
			status = known.ErrStatus
		}
		status.Kind, status.APIVersion = "Status", "v1"
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
		return
	}
	defer func() { _ = body.Close() }()
	_ = http.NewResponseController(w).Flush()
	_, _ = io.Copy(flushing{w}, body)
}

type flushing struct{ http.ResponseWriter }

// Write implements io.Writer.
func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	return n, errors.Join(err, http.NewResponseController(f.ResponseWriter).Flush())
}

// TestKilledWhileWritingNeverLeavesAWrongObject kills one process after the
// other, at any time. Whatever the next one shows, it is exactly what the
// server had at the version that it claims.
func TestKilledWhileWritingNeverLeavesAWrongObject(t *testing.T) {
	b, r := &busy{Server: pooltest.NewServer()}, rand.New(rand.NewPCG(1, 2))
	b.states = []state{{objects: map[string]string{}}}
	server := httptest.NewServer(b)
	defer server.Close()
	defer server.CloseClientConnections()
	ctx, cancel := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	changing.Go(func() {
		random := rand.New(rand.NewPCG(3, 4))
		for ctx.Err() == nil {
			for range random.IntN(20) {
				b.change(random)
			}
			time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
		}
	})
	defer changing.Wait()
	defer cancel()

	file := filepath.Join(t.TempDir(), "cache.db")
	restored, reports := 0, 0
	for i := range *kills {
		if r.IntN(10) == 0 {
			b.Compact() // the next process has to list
		}
		for first, shown := range life(t, server.URL, file, r) {
			require.Equal(t, b.at(t, shown.Version), shown.Objects, "process %d, report %d", i, first)
			if first == 0 && shown.Restored {
				restored++
			}
			reports++
		}
	}
	t.Logf("%d processes killed, %d began with what was kept; %d reports, 0 wrong", *kills, restored, reports)
	require.Greater(t, restored, *kills/3)
}

// life runs a victim for a while, and returns what it reported until then.
func life(t *testing.T, server, file string, r *rand.Rand) (reports []report) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimServer+"="+server, victimFile+"="+file)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	if r.IntN(8) == 0 { // maybe before it has synced
		time.AfterFunc(time.Duration(r.IntN(150))*time.Millisecond, func() { _ = cmd.Process.Kill() })
	}
	for lines.Scan() {
		var shown report
		if err := json.Unmarshal(lines.Bytes(), &shown); err != nil {
			break // the last line of a killed process
		}
		if reports = append(reports, shown); len(reports) == 1 {
			time.AfterFunc(time.Duration(r.IntN(60_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		}
	}
	_, _ = io.Copy(io.Discard, out)
	require.Error(t, cmd.Wait())
	require.Empty(t, complaints.String(), "it did not end by itself")

	return reports
}
