// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package keeper keeps the states of informers in a persist.Store, and returns
// them to the informers of the next process.
//
// # Tests
//
// The leading test is TestKeptStateIsSyncedOnlyOnceProven.
// TestKilledAtAnyWriteLeavesACompleteStateOrNone covers processes that are
// killed. TestRestartedFleetListsNothing (test/restarting) covers whole
// processes.
package keeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// Config configures a Keeper.
type Config struct {
	// Options are the user's; their Store is set.
	Options persist.Options
	// Informers are the options of the pool.
	Informers *informerpool.Options
	// Identity returns what identifies the cluster of an epoch, or "" if
	// nothing has proved it.
	Identity func(informerpool.Epoch) string
	// Logger receives a line for each state that is dropped.
	Logger logr.Logger
	// Wall returns the time of the machine's clock, which may be set. Defaults
	// to that which now has.
	Wall func(now time.Time) time.Time
}

// Keeper implements informerpool.Snapshots. One goroutine, that of Run, writes;
// the others read, and take note of what is to be deleted.
type Keeper struct {
	store     persist.Store
	options   persist.Options
	informers *informerpool.Options
	identity  func(informerpool.Epoch) string
	log       logr.Logger
	codec     *codec
	clock     clock
	process   string // identifies this process in headers
	metrics   *metrics
	locked    bool // another process uses the store; of Open, and then of Run

	// The keys of the dictionaries that are on disk; of Open, and then of Run.
	dictionaries map[id]struct{}

	// The states for which there was no room, in the round before and in this
	// one; of Run.
	tried, misfits map[id]misfit

	kick chan struct{} // there is something to delete
	done chan struct{} // closed when Run has returned

	mu struct {
		sync.Mutex

		entries map[id]*entry
		bytes   int64 // of all entries
		epochs  map[types.NamespacedName]informerpool.Epoch
		broken  error // why the store cannot be used

		// What is not used any more and still has to be deleted.
		dropped  map[id]struct{}
		clusters map[types.NamespacedName]struct{}
		unknown  map[string]struct{} // buckets without a header
	}
}

var _ informerpool.Snapshots = (*Keeper)(nil)

// entry is a kept state.
type entry struct {
	header *header
	mark   informerpool.Mark // of the state in this process; zero if it is of another one
	offset time.Duration     // the clock's, as of which the header's times were written
}

// New returns a Keeper. It does no I/O.
func New(c Config) (*Keeper, error) {
	o := c.Options
	o.Interval = cmp.Or(o.Interval, persist.DefaultInterval)
	o.BytesPerSecond = cmp.Or(o.BytesPerSecond, persist.DefaultBytesPerSecond)
	o.MaxBytes = cmp.Or(o.MaxBytes, persist.DefaultMaxBytes)
	o.MaxAge = cmp.Or(o.MaxAge, persist.DefaultMaxAge)
	o.MaxListAge = cmp.Or(o.MaxListAge, persist.DefaultMaxListAge)
	o.FlushTimeout = cmp.Or(o.FlushTimeout, persist.DefaultFlushTimeout)
	codec, err := newCodec(o.Key)
	if err != nil {
		return nil, err
	}
	k := &Keeper{
		store:     o.Store,
		options:   o,
		informers: c.Informers,
		identity:  c.Identity,
		log:       c.Logger.WithName("persist"),
		codec:     codec,
		clock:     newClock(c.Wall),
		process:   rand.Text(),
		metrics:   newMetrics(),
		kick:      make(chan struct{}, 1),
		done:      make(chan struct{}),

		dictionaries: map[id]struct{}{},
	}
	k.mu.entries, k.mu.epochs = map[id]*entry{}, map[types.NamespacedName]informerpool.Epoch{}
	k.mu.dropped, k.mu.clusters = map[id]struct{}{}, map[types.NamespacedName]struct{}{}
	k.mu.unknown = map[string]struct{}{}

	return k, nil
}

// Open reads which states are kept. If the store cannot be read, it begins
// empty; if another process uses it, Run reads it once that has ended. Open is
// called before Run and Load.
func (k *Keeper) Open() {
	if err := k.open(); err != nil {
		k.report(err)
	}
}

// open returns persist.ErrLocked if another process uses the store.
func (k *Keeper) open() error {
	now := time.Now()
	buckets, err := k.store.Buckets()
	if k.locked = errors.Is(err, persist.ErrLocked); k.locked {
		return err
	}
	entries := map[id]*entry{}
	if err == nil {
		err = k.readEntries(entries, now)
	}
	if err != nil {
		k.metrics.failures.Inc()
		k.metrics.dropped.WithLabelValues(reason(err)).Inc()
		k.log.Error(err, "Kept states cannot be read, and are dropped")
		clear(entries)
		clear(k.dictionaries)
	}

	k.mu.Lock()
	used := map[string]bool{headers: err == nil, dictionaries: err == nil}
	for of, e := range entries {
		used[of.bucket()] = true
		k.mu.entries[of] = e
		k.mu.bytes += e.header.Bytes
	}
	for of := range k.mu.dropped {
		used[of.bucket()] = true
	}
	for _, b := range buckets {
		if ours(b) && !used[b] {
			k.mu.unknown[b] = struct{}{} // a state that was never complete
		}
	}
	k.metrics.bytes.Set(float64(k.mu.bytes))
	k.mu.Unlock()

	timetable.Wake(k.kick)

	return nil
}

// readEntries reads the headers, and which dictionaries there are.
func (k *Keeper) readEntries(entries map[id]*entry, now time.Time) error {
	c, err := k.codec.of(headers)
	if err != nil {
		return err
	}
	err = k.store.Read(headers, func(key, record []byte) error { return k.readEntry(entries, c, key, record, now) })
	if err != nil {
		return err
	}
	return k.store.Read(dictionaries, func(key, _ []byte) error {
		if len(key) == idSize {
			k.dictionaries[id(key)] = struct{}{}
		}
		return nil
	})
}

// readEntry reads one header. A state that cannot be used is dropped.
func (k *Keeper) readEntry(entries map[id]*entry, c *bucketCodec, key, record []byte, now time.Time) error {
	var of id
	if len(key) != len(of) {
		return fmt.Errorf("%w: a header", errFormat)
	}
	copy(of[:], key)
	h, err := c.readHeader(of, record)
	if err == nil {
		h.Proven, h.Listed = k.clock.read(h.Proven, now), k.clock.read(h.Listed, now)
		err = k.check(h, now)
	}
	if err == nil && !k.keeps(&h.Key) {
		err = errSettings // a Secret, for example, is not left on the disk
	}
	if err != nil {
		k.drop(of, h, err)
		return nil
	}
	entries[of] = &entry{
		header: h,
		offset: k.clock.offset(now),
	}

	return nil
}

// keeps reports whether states of an informer are kept.
func (k *Keeper) keeps(key *informerpool.Key) bool {
	o, resource := &k.options, key.Resource.GroupResource()
	kind := schema.GroupKind{
		Group: resource.Group,
		Kind:  key.Kind,
	}
	_, kept := k.transform(resource)

	return kept && (o.Secrets || resource != schema.GroupResource{Resource: "secrets"}) &&
		(len(o.Only) == 0 || slices.Contains(o.Only, kind)) && !slices.Contains(o.Except, kind)
}

// Drop implements informerpool.Snapshots.
func (k *Keeper) Drop(key informerpool.Key, why error) {
	of := k.codec.idOf(key)
	k.mu.Lock()
	e := k.mu.entries[of]
	k.mu.Unlock()

	if e != nil {
		k.drop(of, e.header, why)
		return
	}
	k.mu.Lock()
	k.mu.dropped[of] = struct{}{} // it may be about to be written
	k.mu.Unlock()

	timetable.Wake(k.kick)
}

// DropCluster implements informerpool.Snapshots.
func (k *Keeper) DropCluster(cluster types.NamespacedName, why error) {
	k.mu.Lock()
	k.mu.clusters[cluster] = struct{}{}
	n := 0
	for _, e := range k.mu.entries {
		if e.header.Key.Cluster == cluster {
			n++
		}
	}
	k.mu.Unlock()

	if n > 0 {
		k.metrics.dropped.WithLabelValues(reason(why)).Add(float64(n))
		k.log.Info("Kept states are dropped", "cluster", clustername.Of(cluster), "states", n, "reason", why.Error())
	}
	timetable.Wake(k.kick)
}

// drop ends the use of a state, and has it deleted.
func (k *Keeper) drop(of id, h *header, why error) {
	k.mu.Lock()
	_, again := k.mu.dropped[of]
	k.mu.dropped[of] = struct{}{}
	k.mu.Unlock()

	if !again {
		name := "unknown"
		if h != nil {
			name = h.Key.String()
		}
		k.metrics.dropped.WithLabelValues(reason(why)).Inc()
		k.log.Info("Kept state is dropped", "informer", name, "reason", why.Error())
	}
	timetable.Wake(k.kick)
}

// Patience returns how long to wait for Close.
func (k *Keeper) Patience() time.Duration { return max(k.options.FlushTimeout, 0) + time.Second }

// Close makes the last round of Run end, and waits for Run to return, or for
// ctx. cancel ends the context of Run.
func (k *Keeper) Close(ctx context.Context, cancel context.CancelFunc) error {
	cancel()
	select {
	case <-k.done:
		return nil
	case <-ctx.Done():
		return errors.New("persist: the store hangs")
	}
}
