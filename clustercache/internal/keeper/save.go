// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
)

// kept is a record that is on disk.
type kept struct {
	key, state, sum id
	size            int64
}

// object is an object that is to be on disk.
type object struct {
	key, state id
	object     *informerpool.Object
}

// save adds to a batch what makes the kept state of an informer its current
// one. Objects and version are written in one transaction; if that would be too
// large, the state has no header until the last of them.
func (k *Keeper) save(ctx context.Context, pool *informerpool.Pool, key informerpool.Key, b *batch) error {
	of := k.codec.idOf(key)
	k.mu.Lock()
	e := k.mu.entries[of]
	k.mu.Unlock()

	var since informerpool.Mark
	if e != nil {
		since = e.mark
	}
	c, exact := pool.Capture(key, since)
	now := time.Now()
	identity := k.identity(c.Epoch)
	h := k.header(key, &c, identity)
	switch {
	case !exact, identity == "", k.settings.check(h, now) != nil:
		return nil
	case e != nil && c.Mark == e.mark && (k.clock.offset(now)-e.offset).Abs() <= maxSkew &&
		now.Sub(e.header.Proven) < max(k.options.MaxAge/8, k.options.Interval):
		return nil
	}

	s := &saving{
		keeper: k,
		batch:  b,
		of:     of,
		bucket: of.bucket(),
		began:  len(b.changes),
		header: h,
		mark:   c.Mark,
		offset: k.clock.offset(now),
	}
	if e != nil && c.Unchanged {
		h.Kind, h.Objects, h.Digest, h.Bytes = e.header.Kind, e.header.Objects, e.header.Digest, e.header.Bytes
		return s.end()
	}

	if e != nil {
		s.room = e.header.Bytes
	}
	if m, tried := k.tried[of]; tried && len(c.Objects) >= m.objects && k.overfull(m.bytes-s.room) {
		k.misfits[of] = m
		k.metrics.full.Inc()
		return nil
	}
	var before []kept
	if e == nil {
		// What is there was never complete, or is not valid.
		b.add(persist.Change{Bucket: s.bucket})
	} else {
		var err error
		if before, err = k.records(s.bucket); errors.Is(err, errBroken) {
			k.drop(of, e.header, err)
			return nil
		} else if err != nil {
			return err
		}
	}
	fits, err := s.objects(ctx, before, k.sorted(c.Objects, h))
	if !fits || err != nil {
		return err
	}

	return s.end()
}

// header returns the header of a captured state, without what depends on the
// records.
func (k *Keeper) header(key informerpool.Key, c *informerpool.Capture, identity string) *header {
	revision, _ := k.settings.transform(key.Resource.GroupResource())
	return &header{
		Key:               key,
		Kind:              c.Kind,
		Cluster:           identity,
		Version:           c.ResourceVersion,
		Proven:            c.Proven,
		Listed:            c.Listed,
		Process:           k.process,
		Epoch:             c.Epoch,
		DropManagedFields: k.settings.dropManagedFields,
		Transform:         revision,
	}
}

// sorted returns objects in the order of their records. The identifier of an
// object's state includes all that decides what the record says. That includes
// the last list: a list may show other content under the version that is on
// disk, for example through a new default in a definition.
func (k *Keeper) sorted(objects []*informerpool.Object, h *header) []object {
	out := make([]object, 0, len(objects))
	listed := strconv.FormatInt(h.Listed.UnixNano(), 10)
	for _, o := range objects {
		out = append(out, object{
			key: k.codec.objectID(o.GetNamespace(), o.GetName()),
			state: k.codec.id("state", h.Cluster, h.Kind, h.Transform, strconv.FormatBool(h.DropManagedFields),
				listed, string(o.GetUID()), o.GetResourceVersion()),
			object: o,
		})
	}
	slices.SortFunc(out, func(a, b object) int { return bytes.Compare(a.key[:], b.key[:]) })

	return out
}

// records returns the records of a bucket, sorted by key.
func (k *Keeper) records(bucket string) ([]kept, error) {
	var out []kept
	err := k.store.Read(bucket, func(key, record []byte) error {
		r := kept{size: int64(len(key) + len(record))}
		var ok bool
		if r.state, r.sum, ok = parts(record); !ok || len(key) != idSize {
			return errBroken
		}
		copy(r.key[:], key)
		out = append(out, r)

		return nil
	})

	return out, err
}

// misfit is a state for which there was no room. It is not begun again, as far
// as it fits, before it has fewer objects or there is more room.
type misfit struct {
	objects int
	bytes   int64 // of its first records, which did not fit
}

// saving is a state that is being written.
type saving struct {
	keeper *Keeper
	batch  *batch
	of     id
	bucket string
	began  int // length of the batch when it began
	parted bool
	room   int64 // bytes of the state that it replaces
	header *header
	mark   informerpool.Mark
	offset time.Duration
}

// objects adds the changes that turn the records before into those of the
// objects. It returns false if there is no room for them.
func (s *saving) objects(ctx context.Context, before []kept, after []object) (fits bool, err error) {
	k, h, all := s.keeper, s.header, newDigest()
	for _, o := range after {
		for len(before) > 0 && bytes.Compare(before[0].key[:], o.key[:]) < 0 {
			s.batch.add(persist.Change{Bucket: s.bucket, Key: bytes.Clone(before[0].key[:])})
			before = before[1:]
		}
		var sum id
		var size int64
		if len(before) > 0 && before[0].key == o.key && before[0].state == o.state {
			sum, size = before[0].sum, before[0].size
		} else {
			record, err := k.codec.encode(s.bucket, o.key[:], o.state, o.object.AppendJSON(nil))
			if err != nil {
				return false, err
			}
			_, sum, _ = parts(record)
			size = int64(len(o.key) + len(record))
			s.batch.add(persist.Change{Bucket: s.bucket, Key: o.key[:], Value: record})
		}
		if len(before) > 0 && before[0].key == o.key {
			before = before[1:]
		}
		all.add(o.key[:], sum)
		h.Bytes += size
		if k.overfull(h.Bytes - s.room) {
			k.misfits[s.of] = misfit{len(after), h.Bytes}
			return false, s.giveUp()
		}
		if err := s.part(ctx); err != nil {
			return false, err
		}
	}

	for _, r := range before {
		s.batch.add(persist.Change{Bucket: s.bucket, Key: r.key[:]})
	}
	h.Objects, h.Digest = len(after), all.String()

	return true, nil
}

// part writes what the batch holds, if that is much. From then on, and until
// its end, the state has no header.
func (s *saving) part(ctx context.Context) error {
	if s.batch.bytes < batchBytes {
		return nil
	}
	if !s.parted {
		s.parted = true
		s.keeper.forget(s.of)
		s.room = 0 // forgotten bytes do not count as kept any more
		s.batch.add(persist.Change{Bucket: headers, Key: s.of[:]})
	}
	return s.batch.apply(ctx)
}

// giveUp leaves the state that is kept as it is, or deletes it if it was
// changed already.
func (s *saving) giveUp() error {
	s.keeper.metrics.full.Inc()
	s.keeper.log.V(1).Info("State is not kept: there is no room", "informer", s.header.Key.String())
	if !s.parted {
		s.batch.cut(s.began)
		return nil
	}
	s.batch.add(persist.Change{Bucket: s.bucket})
	return nil
}

// end adds the header.
func (s *saving) end() error {
	clock, now, written := s.keeper.clock, time.Now(), *s.header
	written.Proven, written.Listed = clock.write(written.Proven, now), clock.write(written.Listed, now)
	record, err := s.keeper.codec.marshal(headers, s.of[:], &written)
	if err != nil {
		return err
	}
	s.batch.add(persist.Change{Bucket: headers, Key: s.of[:], Value: record})
	s.batch.saved = append(s.batch.saved, s)

	return nil
}

// overfull reports whether there is no room for more bytes.
func (k *Keeper) overfull(more int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.options.MaxBytes >= 0 && more > 0 && k.mu.bytes+more > k.options.MaxBytes
}

// forget removes an entry.
func (k *Keeper) forget(of id) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.mu.entries[of]; e != nil {
		k.mu.bytes -= e.header.Bytes
		delete(k.mu.entries, of)
	}
}
