// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"sync"
	"sync/atomic"
	"weak"

	"github.com/klauspost/compress/s2"
)

const (
	// samples is how many different objects make a dictionary.
	samples = 8
	// sampleMax bounds what one object contributes, so that several fit.
	sampleMax = dictMax / 4
)

// dictionary is immutable.
type dictionary struct {
	decoder *s2.Dict
	content []byte // the decoder's as well
	at      *positions
}

// dictMax keeps most distances into the dictionary below 64 KiB, where they take
// two bytes instead of four.
const dictMax = s2.MaxDictSize - 8<<10

// trainer makes the dictionary of one kind out of the kind's first objects. Until
// there are enough of them it costs a few weak pointers.
type trainer struct {
	dict atomic.Pointer[dictionary] // nil until published
	done atomic.Bool                // nothing more to be learned

	mu   sync.Mutex // protects seen
	seen []weak.Pointer[Object]
}

// learn offers an object that was packed without a dictionary.
func (t *trainer) learn(o *Object) {
	if t.done.Load() {
		return
	}
	objects := t.collect(o)
	if objects == nil {
		return
	}
	t.dict.Store(newDictionary(objects))
}

// collect notes the object and, when there are enough, returns them, once.
func (t *trainer) collect(o *Object) []*Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done.Load() {
		return nil
	}
	objects := make([]*Object, 0, samples)
	kept := t.seen[:0]
	for _, w := range t.seen {
		// An object that is gone, or was replaced by a newer version of itself, teaches nothing.
		if s := w.Value(); s != nil && s.uid != o.uid {
			objects = append(objects, s)
			kept = append(kept, w)
		}
	}
	t.seen = append(kept, weak.Make(o))
	objects = append(objects, o)
	if len(objects) < samples {
		return nil
	}
	t.seen = nil
	t.done.Store(true)
	return objects
}

// newDictionary concatenates the plain bodies; the newest ends up closest to
// what is packed next.
func newDictionary(objects []*Object) *dictionary {
	var content, last []byte
	for _, o := range objects {
		b, err := o.open()
		if err != nil {
			continue
		}
		last = b.plain[:min(len(b.plain), sampleMax)]
		content = append(content, last...)
		defer b.close()
	}
	content = content[max(len(content)-dictMax, 0):]
	// The decoder shares the content if there is room for its loads behind it.
	content = append(make([]byte, 0, len(content)+16), content...)
	d := s2.MakeDict(content, last)
	if d == nil {
		return nil
	}
	return &dictionary{decoder: d, content: content, at: index(content)}
}
