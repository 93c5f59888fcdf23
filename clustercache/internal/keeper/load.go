// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// errEnough ends a read early.
var errEnough = errors.New("enough")

// Load implements informerpool.Snapshots.
func (k *Keeper) Load(_ context.Context, key informerpool.Key, epoch informerpool.Epoch) *informerpool.Snapshot {
	of := k.codec.idOf(key)
	k.mu.Lock()
	first, known := k.mu.epochs[key.Cluster]
	if !known {
		first, k.mu.epochs[key.Cluster] = epoch, epoch
	}
	e := k.mu.entries[of]
	_, dropped := k.mu.dropped[of]
	_, gone := k.mu.clusters[key.Cluster]
	k.mu.Unlock()

	if e == nil || dropped || gone || !k.keeps(&key) {
		return nil
	}
	if err := k.usable(e.header, key, epoch, first); err != nil {
		k.drop(of, e.header, err)
		return nil
	}

	return &informerpool.Snapshot{
		Kind:            e.header.Kind,
		ResourceVersion: e.header.Version,
		Listed:          e.header.Listed,
		Definition:      e.header.Defined,
		Dictionaries:    k.dictionariesOf(e.header),
		Objects:         k.objects(of, e.header),
	}
}

// usable returns why a state cannot be the one of a key in an epoch, or nil.
// Epochs count the histories that a process has seen. A state of an earlier
// process continues only the first one, and a state of this process only its
// own.
func (k *Keeper) usable(h *header, key informerpool.Key, epoch, first informerpool.Epoch) error {
	identity := k.identity(epoch)
	switch {
	case h.Key != key:
		return errKey
	case identity == "" || identity != h.Cluster:
		return errIdentity
	case h.Process == k.process && h.Epoch != epoch, h.Process != k.process && epoch != first:
		return errHistory
	}
	return k.check(h, time.Now())
}

// dictionariesOf returns the dictionaries of a state.
func (k *Keeper) dictionariesOf(h *header) []informerpool.Dictionary {
	out := make([]informerpool.Dictionary, 0, len(h.Dictionaries))
	for _, d := range h.Dictionaries {
		out = append(out, informerpool.Dictionary{
			ID:   d,
			Read: func() ([]byte, error) { return k.readDictionary(d) },
		})
	}
	return out
}

// readDictionary returns a dictionary that is on disk.
func (k *Keeper) readDictionary(d packed.DictionaryID) (content []byte, err error) {
	c, err := k.codec.of(dictionaries)
	if err != nil {
		return nil, err
	}
	of, broken := k.codec.dictionaryID(d), errBroken // if it is not there
	err = k.store.Read(dictionaries, func(key, record []byte) error {
		if bytes.Equal(key, of[:]) {
			content, _, broken = c.decode(key, record)
		}
		return nil
	})

	return content, errors.Join(err, broken)
}

// objects yields the objects of a state as they are stored, and at last an error
// if they are not exactly those of the header.
func (k *Keeper) objects(of id, h *header) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		bucket, all, n := of.bucket(), newDigest(), 0
		c, err := k.codec.of(bucket)
		if err != nil {
			yield(nil, err)
			return
		}
		err = k.store.Read(bucket, func(key, record []byte) error {
			content, sum, err := c.decode(key, record)
			if err != nil {
				return err
			}
			all.add(key, sum)
			n++
			if !yield(content, nil) {
				return errEnough
			}
			return nil
		})

		switch {
		case errors.Is(err, errEnough):
		case err != nil:
			yield(nil, err)
		case n != h.Objects || all.String() != h.Digest:
			yield(nil, errBroken)
		}
	}
}
