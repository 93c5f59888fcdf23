// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

const (
	// samples is the number of different objects from which a dictionary is
	// made.
	samples = 8
	// stride is the distance between the objects for the second dictionary. The
	// first objects of a list are neighbors, often replicas of one another.
	stride = 64
	// generations is the maximum number of dictionaries of a kind that a process
	// makes.
	generations = 2
	// slots is the maximum number of dictionaries of a kind, with those that
	// earlier processes made.
	slots = 8
	// dictMax bounds the content of a dictionary, whose positions have 16 bits.
	dictMax = 56 << 10
	// sampleMax bounds the contribution of one object, so that several fit.
	sampleMax = dictMax / 4
)

// dictionary is immutable, but for its checks. Its memory is its content, as long
// as nothing is packed or read.
type dictionary struct {
	gen     byte         // how many its process had made before
	slot    byte         // its number in bodies
	id      DictionaryID // of the content and the codes
	public  *Dictionary
	content []byte
	start   int // how far before its end the last sample begins
	at      lazy[positions]
	codes   *codes
	checks  *checks
}

// trainer makes the dictionaries of one kind: one from its first objects, and a
// second, if it is better, from objects further apart. Until there are enough
// objects it holds only a few weak pointers.
type trainer struct {
	newest atomic.Pointer[dictionary] // used for packing; nil until the first one is ready
	all    [slots]atomic.Pointer[dictionary]
	done   atomic.Bool // no more dictionaries will be made

	mu    sync.Mutex // protects the fields below
	seen  []weak.Pointer[Object]
	gen   int // the generation for which objects are collected
	count int // objects since the first dictionary
}

// in returns the dictionary in a slot, or nil if there is none.
func (t *trainer) in(slot byte) *dictionary {
	if slot >= slots {
		return nil
	}
	return t.all[slot].Load()
}

// learn examines an object that was packed. It may take a millisecond, twice in
// the lifetime of a kind.
func (t *trainer) learn(o *Object) {
	if t.done.Load() {
		return
	}
	objects, gen := t.collect(o)
	if objects == nil {
		return
	}
	if d := t.train(objects, byte(gen)); d != nil {
		t.publish(d)
	}
	if gen == generations-1 {
		t.done.Store(true)
	}
}

// publish makes a dictionary the one for packing.
func (t *trainer) publish(d *dictionary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.newest.Load(); (old == nil || old.gen < d.gen) && t.placeLocked(d) {
		t.newest.Store(d)
	}
}

// collect records the object if its turn has come. Once there are enough
// objects, it returns them and their generation to one caller.
func (t *trainer) collect(o *Object) ([]*Object, int) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.gen > 0 {
		t.count++
	}
	if t.gen == generations || t.count%stride != 0 {
		return nil, 0
	}
	objects := make([]*Object, 0, samples)
	kept := t.seen[:0]
	for _, w := range t.seen {
		// An object that was collected by the garbage collector, or replaced by
		// a newer version of itself, contributes nothing.
		if s := w.Value(); s != nil && s.GetUID() != o.GetUID() {
			objects = append(objects, s)
			kept = append(kept, w)
		}
	}

	t.seen = append(kept, weak.Make(o))
	objects = append(objects, o)
	if len(objects) < samples {
		return nil, 0
	}
	gen := t.gen
	t.gen++
	t.seen = nil

	return objects, gen
}

// train makes a dictionary of the objects, unless a dictionary of one half does
// not help to compress the other half.
func (t *trainer) train(objects []*Object, gen byte) *dictionary {
	plain := make([][]byte, 0, len(objects))
	for _, o := range objects {
		of, err := o.open(toEnd)
		if err != nil {
			continue
		}
		plain = append(plain, of.s.sample())
		of.close()
	}

	half := len(plain) / 2
	early, late := newDictionary(plain[:half], gen), newDictionary(plain[half:], gen)
	d := newDictionary(plain, gen)
	if early == nil || late == nil || d == nil {
		return nil
	}
	// The codes suit the objects that will come: those that are not in the
	// dictionary.
	var u usage
	for i, b := range plain {
		switch {
		case len(b) > maxBlock:
		case i < half:
			u.add(b, late)
		default:
			u.add(b, early)
		}
	}
	d.codes = u.codes()
	early.codes = d.codes

	if !pays(plain[half:], t.newest.Load(), early) {
		return nil
	}
	d.identify()

	return d
}

// sample returns a copy of what a dense block would encode.
func (s *scratch) sample() []byte {
	if u := s.unnest(); u != nil {
		defer u.close()
		return bytes.Clone(u.plain)
	}
	return bytes.Clone(s.plain)
}

// pays reports whether a dictionary shortens bodies by a tenth, compared with no
// compression and with compression without any dictionary, or by a twentieth
// compared with the one before: with another one the text of both is kept.
func pays(bodies [][]byte, without, with *dictionary) bool {
	raw, before, after := 0, 0, 0
	var s scratch
	for _, b := range bodies {
		s.plain = b
		raw += len(b)
		before += len(s.seal(without))
		after += len(s.seal(with))
	}

	if without != nil {
		return after <= before*19/20 && after <= raw*9/10
	}
	return after <= before*9/10 && after <= raw*9/10
}

// newDictionary makes a dictionary of the beginnings of bodies. It has no codes
// yet.
func newDictionary(bodies [][]byte, gen byte) *dictionary {
	parts := make([][]byte, 0, len(bodies))
	for _, b := range bodies {
		parts = append(parts, b[:min(len(b), sampleMax)])
	}
	if len(parts) == 0 {
		return nil
	}
	text, start := textOf(parts)
	if len(text) < margin {
		return nil
	}
	return &dictionary{
		gen:     gen,
		content: slices.Clone(text[max(len(text)-dictMax, 0):]),
		start:   start,
		checks:  new(checks),
	}
}
