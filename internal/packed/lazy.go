// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"sync"
	"sync/atomic"
	"weak"
)

// lazy is a value that is made when it is needed, and made again once the
// garbage collector has taken it because nothing used it. It suits what takes
// memory, is soon made, always the same, and needed now and then: a dictionary
// without what it is used with takes a tenth. It is safe for concurrent use.
type lazy[T any] struct {
	mu   sync.Mutex // held while the value is being made
	made atomic.Pointer[weak.Pointer[T]]
}

// get returns the value. It lasts while the caller refers to it.
func (l *lazy[T]) get(make func() *T) *T {
	if v := l.value(); v != nil {
		return v
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.value(); v != nil { // meanwhile
		return v
	}
	v := make()
	l.made.Store(new(weak.Make(v)))

	return v
}

// value returns the value, or nil if it has to be made.
func (l *lazy[T]) value() *T {
	if w := l.made.Load(); w != nil {
		return w.Value()
	}
	return nil
}
