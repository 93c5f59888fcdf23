// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

// siblings are the informers of one resource of a cluster. There may be
// thousands, each of one object or label, so a list visits only those that may
// have its objects, and looks up what all of them have shown.
type siblings struct {
	// by has those in the pool by namespace, and by the one name of their
	// objects; the pool's lock protects it.
	by map[string]map[string]map[*informer]struct{}

	parts atomic.Uint64 // see Lease.PartsReached

	mu   sync.Mutex // protects the field below; no other lock is taken under it
	most peak
}

// peak is the highest version that an informer has shown, and who.
type peak struct {
	era
	version string
	by      *informer
}

func (s *siblings) addLocked(i *informer) {
	names := s.by[i.key.Namespace]
	if names == nil {
		names = map[string]map[*informer]struct{}{}
		s.by[i.key.Namespace] = names
	}
	if names[i.name] == nil {
		names[i.name] = map[*informer]struct{}{}
	}
	names[i.name][i] = struct{}{}
}

func (s *siblings) removeLocked(i *informer) {
	names := s.by[i.key.Namespace]
	if delete(names[i.name], i); len(names[i.name]) == 0 {
		delete(names, i.name)
	}
	if len(names) == 0 {
		delete(s.by, i.key.Namespace)
	}
}

// siblings returns the other informers of an informer's resource.
func (p *Pool) siblings(of *informer) []*informer { return p.siblingsIn(of, "", "") }

// overlapping returns those of them that may have objects of the informer.
func (p *Pool) overlapping(of *informer) []*informer {
	return p.siblingsIn(of, of.key.Namespace, of.name)
}

func (p *Pool) siblingsIn(of *informer, namespace, name string) (others []*informer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for names := range meeting(of.siblings.by, namespace) {
		for informers := range meeting(names, name) {
			for i := range informers {
				if i != of {
					others = append(others, i)
				}
			}
		}
	}
	return slices.Clip(others)
}

// meeting yields what concerns a key, or everything if it is empty: the empty
// key stands for all.
func meeting[V any](of map[string]V, key string) iter.Seq[V] {
	if key == "" {
		return maps.Values(of)
	}
	return func(yield func(V) bool) {
		for _, k := range [...]string{"", key} {
			if v, ok := of[k]; ok && !yield(v) {
				return
			}
		}
	}
}

// theName returns the one name of the objects that a key selects, and whether
// it selects by nothing else; or an empty name.
func theName(k Key) (name string, alone bool) {
	selector, err := fields.ParseSelector(k.FieldSelector)
	if err != nil {
		return "", false
	}
	name, exact := selector.RequiresExactMatch("metadata.name")
	return name, exact && len(selector.Requirements()) == 1 && k.LabelSelector == ""
}

// peakLocked returns what the informer shows; it has no informer if that is
// nothing, or not to be believed. The informer's lock is held.
func (i *informer) peakLocked() (p peak) {
	if i.mu.synced && i.mu.doubt == nil {
		p = peak{era{i.mu.epoch, i.mu.history}, i.shownAtLocked(), i}
	}
	return p
}

// over reports whether p is of a later history than other, or of a later
// version in the same one.
func (p peak) over(other peak) bool {
	switch {
	case p.by == nil || !ordering.Ordered(p.version):
		return false
	case other.by == nil || p.epoch != other.epoch:
		return true
	}
	return p.number > other.number || p.number == other.number && ordering.Behind(other.version, p.version)
}

// raiseLocked records what an informer shows, whose lock is held.
func (s *siblings) raiseLocked(i *informer) {
	now := i.peakLocked()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.over(s.most) {
		s.most = now
	}
}

// replace records what a visit of all informers has found, unless another one
// has shown more meanwhile.
func (s *siblings) replace(before, found peak) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most == before {
		s.most = found
	}
}

// peak returns the highest version that any of them was found to show. It is
// current while the informer still shows that history.
func (s *siblings) peak() peak {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}
