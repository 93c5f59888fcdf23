// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/comparison"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// errTooMuch indicates that more objects changed during an audit than it
// remembers.
var errTooMuch = errors.New("too much changes")

// errUnsettled ends an audit that the informer's own progress has overtaken.
var errUnsettled = errors.New("informer moved on")

// audit compares the informer's cache with a list of its server. A client that
// only follows a stream cannot detect what the stream omits: events that a
// server dropped, or a rolled-back history that has since overtaken the version
// the informer had reached.
//
// An audit requests only names, uids and versions, and the server's current
// state. A list as of the version that the informer has reached would not do: a
// server that stopped sending at that version would agree with the cache for
// ever, and no bookmark advances the version. A list of the current state may
// be ahead of the stream, though: a difference can be a change on its way. From
// then on the stream owes that change, and has a bounded time to bring it:
//
//	list ──► no difference: equal
//	  └────► wait for the stream ──► it brought everything: equal
//	           └─► it was silent, or passed the list's version without it
//	                 └─► a second list differs there, too: ErrHistory
type audit struct {
	informer *informer

	epoch    Epoch
	lists    int    // lists the informer had committed before
	since    int    // number of the audit among the looks at the server
	at       string // the version of the last list
	compared comparison.Comparison
}

// run compares the informer with its server. It returns [ErrHistory] if they
// differ, and another error if the comparison could not be made.
func (a *audit) run(ctx context.Context) error {
	if !a.begin() {
		return errUnsettled
	}
	defer a.finish()
	if err := a.differs(ctx); err != nil {
		return err
	}
	a.settleSeen()

	return nil
}

// differs returns why the informer differs from its server, or nil.
func (a *audit) differs(ctx context.Context) error {
	if err := a.look(ctx); err != nil || !a.compared.Differs() {
		return err
	}
	if err := a.settle(ctx); err != nil || !a.compared.Differs() {
		return err
	}
	a.compared.Owe()
	if err := a.look(ctx); err != nil {
		return err
	}
	return a.verdict()
}

// settleSeen delivers the deletes of objects that were seen before the audit
// and that both cache and server lack. The audit's list is current, and so no
// earlier than an object that was seen before it. If the list is at an earlier
// version, that proves that the object is of a history that is over; the
// informer need not wait until the current history passes the object's version.
func (a *audit) settleSeen() {
	a.informer.mu.Lock()
	defer a.informer.mu.Unlock()
	if !a.compared.Blind() && a.followsLocked() {
		same := func(name types.NamespacedName) *Object { return a.informer.mu.store.Get(name.Namespace, name.Name) }
		a.postponeLocked()
		for _, name := range a.informer.mu.seen.missed(a.since, "", false, same) {
			a.informer.mu.seen.found(name)
		}
	}
}

// postponeLocked leaves a seen object to a later look if the last list has an
// object of its name that the audit did not compare or keep: the object may
// exist, and the cache lacks it so far, or refuses it.
func (a *audit) postponeLocked() {
	for name := range a.compared.Uncompared() {
		if s := a.informer.mu.seen.objects[name]; s != nil {
			s.looks = a.informer.mu.seen.looks
		}
	}
}

// begin makes the informer record the changes that its stream brings from now
// on. It reports whether the informer follows its server.
func (a *audit) begin() bool {
	a.informer.mu.Lock()
	defer a.informer.mu.Unlock()

	a.epoch, a.lists = a.informer.mu.epoch, a.informer.mu.taken
	if !a.followsLocked() {
		return false
	}
	a.informer.mu.touched, a.since = comparison.NewChanges(), a.informer.mu.seen.look()

	return true
}

func (a *audit) finish() {
	a.informer.mu.Lock()
	defer a.informer.mu.Unlock()
	a.informer.mu.touched = nil
}

// followsLocked reports whether the informer follows its server, in the history
// it followed when the audit began, and has not listed since.
func (a *audit) followsLocked() bool {
	i := a.informer
	return i.mu.follows() && !i.mu.polling && i.mu.doubt == nil && a.lists == i.mu.taken
}

// look compares the current cache with a list of the server's current state.
func (a *audit) look(ctx context.Context) error {
	err := a.list(ctx, a.informer.pool.options.PageSize)
	if apierrors.IsResourceExpired(err) { // its pages are forgotten faster than they are read
		err = a.list(ctx, 0)
	}
	if err != nil {
		return err
	}

	a.compared.End(a.at)

	return nil
}

// list compares a list of the server with the objects that are cached when it
// begins.
func (a *audit) list(ctx context.Context, limit int64) (err error) {
	if !a.snapshot() {
		return errUnsettled
	}
	timeout := a.informer.pool.options.auditTimeout()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s := server{informer: a.informer, epoch: a.epoch}
	a.at, err = s.metadata(ctx, limit, timeout, func(at scanner) error {
		if it, err := at.Scan(); err != nil {
			a.compared.Skip(wire.Identify(at.Object()))
		} else if a.informer.key.mayList(it) {
			a.compared.Compare(it)
		}
		return nil
	})

	return err
}

// snapshot records the objects that are cached now. It reports false if the
// audit is overtaken.
func (a *audit) snapshot() bool {
	a.informer.mu.RLock()
	defer a.informer.mu.RUnlock()

	if !a.followsLocked() {
		return false
	}
	seen := make(map[types.NamespacedName]bool, len(a.informer.mu.seen.objects))
	for name := range a.informer.mu.seen.objects {
		seen[name] = false
	}
	cached := map[string]map[string]*Object{}
	for o := range a.informer.mu.store.All() {
		objects := cached[o.GetNamespace()]
		if objects == nil {
			objects = map[string]*Object{}
			cached[o.GetNamespace()] = objects
		}
		objects[packed.NameOf(o)] = o
	}
	a.compared.Begin(cached, seen)

	return true
}

// settle waits for the stream to bring the differences, and keeps those it did
// not bring.
func (a *audit) settle(ctx context.Context) error {
	silence := a.informer.pool.options.auditSilence()
	began := time.Now()
	moved, last := began, ""
	for {
		rv, err := a.drop()
		if err != nil || !a.compared.Differs() {
			return err
		}
		if rv != last {
			moved, last = time.Now(), rv
		}
		waited := time.Since(began)
		if waited >= auditLag || waited >= silence && (ordering.Reaches(rv, a.at) || time.Since(moved) >= silence) {
			return nil
		}
		if !timetable.Sleep(ctx, silence/10) {
			return context.Cause(ctx)
		}
	}
}

// drop removes the differences that the stream has settled meanwhile. It
// returns the version that the stream has reached.
func (a *audit) drop() (string, error) {
	a.informer.mu.RLock()
	defer a.informer.mu.RUnlock()

	if !a.followsLocked() {
		return "", errUnsettled
	}
	if a.informer.mu.touched.Over() {
		return "", errTooMuch
	}
	a.compared.Settle(func(name types.NamespacedName, d comparison.Difference) bool {
		return a.informer.mu.refused.Has(name) || a.settledLocked(name, d)
	})

	return a.informer.mu.rv, nil
}

// settledLocked reports whether the stream has brought the state that a list
// showed, or a later one. If versions have no order, any change counts.
func (a *audit) settledLocked(name types.NamespacedName, d comparison.Difference) bool {
	version, changed := a.informer.mu.touched.Version(name)
	if !d.Absent {
		return changed && !ordering.Behind(version, d.Version)
	}
	o := a.informer.mu.store.Get(name.Namespace, name.Name)
	return o == nil || changed && !ordering.Reaches(d.Version, o.GetResourceVersion())
}

// verdict combines both lists: a change is lost if the stream has owed it since
// the first list, and the second list differs from the cache there, too.
func (a *audit) verdict() error {
	if _, err := a.drop(); err != nil {
		return err
	}
	if lost := a.compared.Lost(); lost > 0 {
		return fmt.Errorf("%s: %w: %d objects or more differ from the server's at %s",
			a.informer.key, ErrHistory, lost, a.at)
	}
	return nil
}
