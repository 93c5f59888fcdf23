// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fleetcache/fleetcache/informerpool/internal/ahead"
	"github.com/fleetcache/fleetcache/informerpool/internal/selector"
	"github.com/fleetcache/fleetcache/internal/few"
	"github.com/fleetcache/fleetcache/internal/traits"
)

// siblings are the informers of one resource of a cluster. There may be
// thousands, each of one object or label, so a list visits only those that may
// have its objects, and looks up what all of them have shown.
type siblings struct {
	apart atomic.Bool // there are several, or changes that the last one has not reached

	testimony testimony // of the resource's storage, if it may be another than the cluster's

	mu      sync.Mutex // protects the fields below; no other lock is taken under it
	members map[*informer]struct{}
	by      few.Map[string, few.Sets[string, *informer]] // by namespace, and the one name of their objects
	labeled few.Sets[label, *informer]                   // those that select by one label; they are not in by
	keys    few.Map[string, int]                         // how many of them have a label
	shows   few.Map[showing, int]                        // how many of them
	era     era                                          // the newest history that a list has shown
	changes ahead.Changes                                // of it
	ended   uint64                                       // the latest version of it that ended informers have shown
}

// label is one that all objects of an informer have.
type label struct{ key, value string }

// lead is how far an informer has come. siblings.mu protects it.
type lead struct {
	shows   era    // the history of its objects; zero if it shows none
	ordered bool   // its versions are numbers
	reached uint64 // it has all changes up to this version
	most    uint64 // the latest version that it has shown; zero if that is in doubt
	synced  bool   // it answers reads
	listing bool   // a list is under way
	coming  uint64 // the version of the list that it is about to show
	debts   ahead.Debts[Key]
	left    uint64 // the latest version that any had shown of its history when another epoch was entered
}

// showing is whether an informer answers reads, and of which epoch.
type showing struct {
	synced bool
	epoch  Epoch
}

func (l *lead) showing() showing { return showing{l.synced, l.shows.epoch} }

func newSiblings() *siblings { return &siblings{members: map[*informer]struct{}{}} }

// add adds an informer, unless it is one of them already.
func (s *siblings) add(i *informer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(i)
}

func (s *siblings) addLocked(i *informer) {
	if _, is := s.members[i]; is {
		return
	}
	s.members[i] = struct{}{}
	few.Count(&s.shows, i.lead.showing(), 1)
	if len(s.members) > 1 {
		s.apart.Store(true)
	}
	if i.label != (label{}) {
		few.Add(&s.labeled, i.label, i)
		few.Count(&s.keys, i.label.key, 1)
		return
	}
	names := s.by.Get(i.key.Namespace)
	few.Add(&names, i.name, i)
	s.by.Set(i.key.Namespace, names)
}

func (s *siblings) remove(i *informer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, is := s.members[i]; !is {
		return
	}
	delete(s.members, i)
	few.Count(&s.shows, i.lead.showing(), -1)
	if i.lead.shows == s.era {
		s.ended = max(s.ended, i.lead.most)
	}
	if i.label != (label{}) {
		few.Remove(&s.labeled, i.label, i)
		few.Count(&s.keys, i.label.key, -1)
		return
	}
	names := s.by.Get(i.key.Namespace)
	if few.Remove(&names, i.name, i); names.Len() > 0 {
		s.by.Set(i.key.Namespace, names)
	} else {
		s.by.Delete(i.key.Namespace)
	}
}

// others returns all of them but one.
func (s *siblings) others(of *informer) []*informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(s.members)), func(i *informer) bool { return i == of })
}

// overlapping returns those of them that may have objects of the informer.
func (s *siblings) overlapping(of *informer) (others []*informer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for names := range meeting(&s.by, of.key.Namespace) {
		for informers := range meeting(&names, of.name) {
			others = slices.AppendSeq(others, informers.Keys())
		}
	}
	for informers := range s.labeled.Values() {
		for i := range informers.Keys() {
			if of.key.Namespace == "" || i.key.Namespace == "" || i.key.Namespace == of.key.Namespace {
				others = append(others, i)
			}
		}
	}
	return slices.DeleteFunc(others, func(i *informer) bool { return i == of })
}

// selecting yields the informers that may select an object, as far as its
// namespace, name and labels decide: none for nil. The lock is held.
func (s *siblings) selecting(o *Object) iter.Seq[*informer] {
	return func(yield func(*informer) bool) {
		if o == nil {
			return
		}
		pass := func(informers few.Set[*informer]) bool {
			for i := range informers.Keys() {
				if i.selects.Meets(o) && !yield(i) {
					return false
				}
			}
			return true
		}
		for names := range meeting(&s.by, o.GetNamespace()) {
			for _, name := range [...]string{"", o.GetName()} {
				if !pass(names.Get(name)) {
					return
				}
			}
		}
		for key := range s.keys.Keys() {
			if value, has := o.Label(key); has && !pass(s.labeled.Get(label{key, value})) {
				return
			}
		}
	}
}

// errEarlier indicates that another informer of the resource shows a later
// history.
var errEarlier = fmt.Errorf("%w: another one was entered", ErrHistory)

// errLacked indicates that the list of another informer of the resource has a
// state that its watch had not brought.
var errLacked = errors.New("another informer lacked an object")

// distrust makes the other informers list that show the history that an
// informer has found to be over. Their audits may not see it: an object can have
// got the version of its undone state again.
func (s *siblings) distrust(i *informer, over era, found error) {
	for _, other := range s.others(i) {
		other.leave(over, found)
	}
}

// dropKept drops what is kept of the history that an informer has found to be
// over: that of the cluster, or of the resource alone.
func (s *siblings) dropKept(i *informer, why error) {
	kept := &i.pool.kept
	if shared(i.key.Resource.Group) {
		kept.dropCluster(i.key.Cluster, why)
		return
	}
	for _, other := range append(s.others(i), i) {
		kept.drop(other.key, why)
	}
}

// relistEarlier makes those informers list that show an earlier history than the
// newest one after a list of i: all of them if that list has entered it, and
// otherwise i, whose list may have ended while another one entered it. Who shows
// an earlier history answers no reads, and may not find that out by itself.
func (s *siblings) relistEarlier(i *informer, entered bool) {
	for other, over := range s.earlier(i, entered) {
		other.leave(over, errEarlier)
	}
}

// earlier returns the informers that show an earlier history of the same epoch
// than the newest one, and which: all of them, or none but i.
func (s *siblings) earlier(i *informer, all bool) map[*informer]era {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := map[*informer]era{}
	if all {
		for other := range s.members {
			of[other] = other.lead.shows
		}
	} else {
		of[i] = i.lead.shows
	}
	maps.DeleteFunc(of, func(other *informer, shows era) bool {
		return !other.lead.synced || shows.epoch != s.era.epoch || shows.number >= s.era.number
	})
	return of
}

// doubt makes the other informers list, after a list has shown that an informer
// lacked what its stream should have brought. Either its stream dropped that, or
// the server has another history, in which the objects of the others may have
// the versions of their undone states.
func (s *siblings) doubt(i *informer) {
	for _, other := range s.others(i) {
		other.doubtful(fmt.Errorf("%s: %w", other.key, errLacked))
	}
}

// meeting yields what concerns a key, or everything if it is empty: the empty
// key stands for all.
func meeting[V any](of *few.Map[string, V], key string) iter.Seq[V] {
	if key == "" {
		return of.Values()
	}
	return func(yield func(V) bool) {
		for _, k := range [...]string{"", key} {
			if v, ok := of.Lookup(k); ok && !yield(v) {
				return
			}
		}
	}
}

// part reports whether a key selects by labels, or by other fields than one name:
// what its informer lacks may exist.
func (k Key) part() bool {
	return k.LabelSelector != "" || k.FieldSelector != "" && traits.Name(k.FieldSelector) == ""
}

// selects returns the part of a key's selector that can be evaluated here.
func selects(k Key) selector.Selector {
	if !selector.Local(k.FieldSelector) {
		k.FieldSelector = ""
	}
	return newSelector(Key{}, k)
}
