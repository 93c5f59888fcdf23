// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// batchBytes is about how many bytes one transaction writes.
const batchBytes = 1 << 20

// changeBytes is about what a change costs beside its value.
const changeBytes = 64

// batch is a transaction to be.
type batch struct {
	keeper  *Keeper
	paced   bool
	changes []persist.Change
	records []byte // of the changes; used again once they are written
	bytes   int64
	saved   []*saving // the states whose headers are among the changes
}

func (b *batch) add(c persist.Change) {
	b.changes = append(b.changes, c)
	b.bytes += int64(len(c.Value)) + changeBytes
}

// cut removes the changes from the n-th on.
func (b *batch) cut(n int) {
	for _, c := range b.changes[n:] {
		b.bytes -= int64(len(c.Value)) + changeBytes
	}
	b.changes = b.changes[:n]
}

// apply makes the changes, and waits as long as they may take. If it fails,
// nothing is known about the states.
func (b *batch) apply(ctx context.Context) error {
	if len(b.changes) == 0 {
		return nil
	}
	k := b.keeper
	began, changes, saved, n := time.Now(), b.changes, b.saved, b.bytes
	b.saved, b.bytes = nil, 0
	err := k.store.Apply(changes)
	clear(changes)
	b.changes = changes[:0]
	b.records = b.records[:0]
	if err != nil {
		for _, s := range saved {
			k.forget(s.of)
		}
		return err
	}
	k.metrics.written.Add(float64(n))
	k.mu.Lock()
	for _, s := range saved {
		if e := k.mu.entries[s.of]; e != nil {
			k.mu.bytes -= e.header.Bytes
		}
		k.mu.entries[s.of] = &entry{header: s.header, mark: s.mark, offset: s.offset}
		k.mu.bytes += s.header.Bytes
	}
	k.metrics.bytes.Set(float64(k.mu.bytes))
	k.mu.Unlock()

	if rate := k.options.BytesPerSecond; b.paced && rate > 0 {
		took := time.Duration(float64(n) / float64(rate) * float64(time.Second))
		timetable.Sleep(ctx, took-time.Since(began))
	}

	return ctx.Err()
}

// lockedPause is the time between two attempts to read a store that another
// process uses.
const lockedPause = time.Second

// Run writes until ctx ends, and then the last round. It writes nothing before
// it has read what is kept.
func (k *Keeper) Run(ctx context.Context, pool *informerpool.Pool) {
	defer close(k.done)
	ticker := time.NewTicker(k.options.Interval)
	defer ticker.Stop()
	for k.locked && timetable.Sleep(ctx, lockedPause) {
		k.report(k.open())
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-k.kick:
			k.report(k.tidy())
		case <-ticker.C:
			k.report(k.round(ctx, pool, true))
		}
	}

	if k.options.FlushTimeout > 0 && !k.locked {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.options.FlushTimeout)
		defer cancel()
		k.report(k.round(last, pool, false))
	}
}

// round writes what has changed.
func (k *Keeper) round(ctx context.Context, pool *informerpool.Pool, paced bool) error {
	k.sweep()
	if err := k.deleteDropped(); err != nil {
		return err
	}
	k.tried, k.misfits = k.misfits, map[id]misfit{}
	b := &batch{keeper: k, paced: paced}
	for _, key := range pool.Keys() {
		if ctx.Err() != nil {
			break // what is complete is written
		}
		if !k.keeps(&key) {
			continue
		}
		if err := k.heed(ctx, b); err != nil {
			return err
		}
		if err := k.save(ctx, pool, key, b); err != nil {
			return err
		}
		if b.bytes >= batchBytes {
			if err := b.apply(ctx); err != nil {
				return err
			}
		}
	}
	if err := b.apply(ctx); err != nil {
		return err
	}
	return k.tidy()
}

// deleteDictionaries deletes the dictionaries to which no state refers any more.
// No state is being written.
func (k *Keeper) deleteDictionaries() error {
	used := map[id]struct{}{}
	k.mu.Lock()
	for _, e := range k.mu.entries {
		for _, d := range e.header.Dictionaries {
			used[k.codec.dictionaryID(d)] = struct{}{}
		}
	}
	k.mu.Unlock()

	var changes []persist.Change
	for of := range k.dictionaries {
		if _, needed := used[of]; !needed {
			changes = append(changes, persist.Change{Bucket: dictionaries, Key: of[:]})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := k.store.Apply(changes); err != nil {
		return err
	}
	for _, c := range changes {
		delete(k.dictionaries, id(c.Key))
	}

	return nil
}

// heed deletes, in the middle of a round, what is not used any more: a round
// may take minutes, and a process that is killed within it would leave that to
// the next one. The batch is written before, since it may have some of it.
func (k *Keeper) heed(ctx context.Context, b *batch) error {
	select {
	case <-k.kick:
	default:
		return nil
	}
	if err := b.apply(ctx); err != nil {
		timetable.Wake(k.kick)
		return err
	}
	return k.deleteDropped()
}

// sweep drops the states that are too old.
func (k *Keeper) sweep() {
	now, old := time.Now(), map[id]*header{}
	k.mu.Lock()
	for of, e := range k.mu.entries {
		if k.check(e.header, now) != nil {
			old[of] = e.header
		}
	}
	k.mu.Unlock()

	for of, h := range old {
		k.drop(of, h, k.check(h, now))
	}
}

// deleteDropped deletes what is not used any more. Until then, Load returns
// nothing of it.
func (k *Keeper) deleteDropped() error {
	k.mu.Lock()
	ids := slices.Collect(maps.Keys(k.mu.dropped))
	buckets := slices.Collect(maps.Keys(k.mu.unknown))
	clusters := slices.Collect(maps.Keys(k.mu.clusters))
	for of, e := range k.mu.entries {
		if _, gone := k.mu.clusters[e.header.Key.Cluster]; gone {
			ids = append(ids, of)
		}
	}
	k.mu.Unlock()

	changes := make([]persist.Change, 0, len(buckets)+2*len(ids))
	for _, bucket := range buckets {
		changes = append(changes, persist.Change{Bucket: bucket})
	}
	for _, of := range ids {
		changes = append(changes,
			persist.Change{
				Bucket: headers,
				Key:    of[:],
			},
			persist.Change{Bucket: of.bucket()})
	}
	if len(changes) > 0 {
		if err := k.store.Apply(changes); err != nil {
			return err
		}
	}

	for _, of := range ids {
		k.forget(of)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, of := range ids {
		delete(k.mu.dropped, of)
	}
	for _, bucket := range buckets {
		delete(k.mu.unknown, bucket)
	}
	for _, cluster := range clusters {
		delete(k.mu.clusters, cluster)
	}
	k.metrics.bytes.Set(float64(k.mu.bytes))

	return nil
}

// tidy deletes what is not used any more, between two rounds.
func (k *Keeper) tidy() error {
	if err := k.deleteDropped(); err != nil {
		return err
	}
	return k.deleteDictionaries()
}

// report logs an error of the store, once in a row, and counts it.
func (k *Keeper) report(err error) {
	k.mu.Lock()
	changed := (err == nil) != (k.mu.broken == nil)
	k.mu.broken = err
	k.mu.Unlock()

	switch {
	case err == nil && changed:
		k.log.Info("States are written again")
	case errors.Is(err, persist.ErrLocked):
		if changed {
			k.log.Info("Nothing is kept before another process has ended", "reason", err.Error())
		}
	case err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		k.metrics.failures.Inc()
		if changed {
			k.log.Error(err, "States cannot be written")
		}
	}
}
