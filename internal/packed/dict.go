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

// dictionary is immutable, but for its checks. Its memory is its content plus 60 KiB.
type dictionary struct {
	gen     byte         // how many its process had made before
	slot    byte         // its number in bodies
	id      DictionaryID // of the content and the codes
	public  *Dictionary
	content []byte
	start   int // how far before its end the last sample begins
	at      *positions
	codes   codes
	checks  *checks
}

// forReading returns the dictionary without what only encoding needs.
func (d *dictionary) forReading() *dictionary {
	read := *d
	read.at = nil
	return &read
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
		if old != nil {
			t.all[old.slot].Store(old.forReading())
		}
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

// pays reports whether a dictionary shortens bodies by a tenth, compared both
// with compression without it and with no compression at all.
func pays(bodies [][]byte, without, with *dictionary) bool {
	raw, before, after := 0, 0, 0
	var s scratch
	for _, b := range bodies {
		s.plain = b
		raw += len(b)
		before += len(s.seal(without))
		after += len(s.seal(with))
	}

	return after <= before*9/10 && after <= raw*9/10
}

// newDictionary concatenates the beginnings of bodies. The last one ends up
// closest to the packed objects. The dictionary has no codes yet.
func newDictionary(bodies [][]byte, gen byte) *dictionary {
	var content, last []byte
	for _, b := range bodies {
		last = b[:min(len(b), sampleMax)]
		content = append(content, last...)
	}
	content = slices.Clone(content[max(len(content)-dictMax, 0):])
	if len(content) < margin {
		return nil
	}
	return &dictionary{
		gen:     gen,
		content: content,
		start:   len(last),
		at:      index(content),
		checks:  new(checks),
	}
}
