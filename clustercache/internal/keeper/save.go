// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// kept is a record that is on disk.
type kept struct {
	key, sum id
	size     int64
}

// object is an object that is to be on disk.
type object struct {
	key    id
	object *informerpool.Object
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
	case !exact, identity == "", k.check(h, now) != nil:
		return nil
	case e != nil && c.Mark == e.mark && c.Definition == e.header.Defined &&
		(k.clock.offset(now)-e.offset).Abs() <= maxSkew &&
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
		h.Dictionaries = e.header.Dictionaries
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
		h.Dictionaries = slices.Clone(e.header.Dictionaries)
	}
	fits, err := s.objects(ctx, before, k.sorted(c.Objects))
	if !fits || err != nil {
		return err
	}

	return s.end()
}

// header returns the header of a captured state, without what depends on the
// records.
func (k *Keeper) header(key informerpool.Key, c *informerpool.Capture, identity string) *header {
	revision, _ := k.transform(key.Resource.GroupResource())
	return &header{
		Key:               key,
		Kind:              c.Kind,
		Cluster:           identity,
		Version:           c.ResourceVersion,
		Proven:            c.Proven,
		Listed:            c.Listed,
		Defined:           c.Definition,
		Process:           k.process,
		Epoch:             c.Epoch,
		Packed:            packed.StoredFormat,
		DropManagedFields: k.informers.DropManagedFields,
		Transform:         revision,
	}
}

// sorted returns objects in the order of their records.
func (k *Keeper) sorted(objects []*informerpool.Object) []object {
	out := make([]object, 0, len(objects))
	for _, o := range objects {
		out = append(out, object{
			key:    k.codec.objectID(o.GetNamespace(), packed.NameOf(o)),
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
		if r.sum, ok = sumOf(record); !ok || len(key) != idSize {
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
	c, err := k.codec.of(s.bucket)
	if err != nil {
		return false, err
	}
	var content []byte
	used := make([]bool, len(h.Dictionaries))
	for i := range after {
		o := &after[i]
		for len(before) > 0 && bytes.Compare(before[0].key[:], o.key[:]) < 0 {
			s.batch.add(persist.Change{Bucket: s.bucket, Key: bytes.Clone(before[0].key[:])})
			before = before[1:]
		}
		number, err := s.dictionary(packed.DictionaryOf(o.object), &used)
		if err != nil {
			return false, err
		}
		content = packed.AppendStored(content[:0], o.object, number)
		sum := c.sum(o.key[:], c.format(false), content)
		var size int64
		if len(before) > 0 && before[0].key == o.key && before[0].sum == sum {
			size = before[0].size
		} else {
			if s.batch.records == nil {
				s.batch.records = make([]byte, 0, batchBytes)
			}
			from := len(s.batch.records)
			s.batch.records = c.append(s.batch.records, o.key[:], content, false, sum)
			record := slices.Clip(s.batch.records[from:])
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

	for i, needed := range used {
		if !needed {
			h.Dictionaries[i] = packed.DictionaryID{}
		}
	}
	for _, r := range before {
		s.batch.add(persist.Change{Bucket: s.bucket, Key: r.key[:]})
	}
	h.Objects, h.Digest = len(after), all.String()

	return true, nil
}

// dictionary returns the number of a dictionary, and writes the dictionary if it
// is not on disk yet: before any state refers to it.
func (s *saving) dictionary(d *packed.Dictionary, used *[]bool) (number byte, err error) {
	if d == nil {
		return 0, nil
	}
	h := s.header
	at := slices.Index(h.Dictionaries, d.ID())
	if at < 0 {
		if err := s.keeper.writeDictionary(d); err != nil {
			return 0, err
		}
		if at = slices.Index(h.Dictionaries, packed.DictionaryID{}); at < 0 {
			at = len(h.Dictionaries) // a kind has few
			h.Dictionaries, *used = append(h.Dictionaries, packed.DictionaryID{}), append(*used, false)
		}
		h.Dictionaries[at] = d.ID()
	}
	(*used)[at] = true

	return byte(at), nil //nolint:gosec // a kind has few
}

// writeDictionary writes a dictionary, unless it is on disk.
func (k *Keeper) writeDictionary(d *packed.Dictionary) error {
	of := k.codec.dictionaryID(d.ID())
	if _, written := k.dictionaries[of]; written {
		return nil
	}
	c, err := k.codec.of(dictionaries)
	if err != nil {
		return err
	}
	record := c.encode(of[:], d.AppendStored(nil))
	if err := k.store.Apply([]persist.Change{{Bucket: dictionaries, Key: of[:], Value: record}}); err != nil {
		return err
	}
	k.dictionaries[of] = struct{}{}
	k.metrics.written.Add(float64(len(record)))

	return nil
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
	c, err := s.keeper.codec.of(headers)
	if err != nil {
		return err
	}
	content, err := json.Marshal(&written)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	s.batch.add(persist.Change{Bucket: headers, Key: s.of[:], Value: c.encode(s.of[:], content)})
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
