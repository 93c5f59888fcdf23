// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/informerpool/internal/rounds"
)

// rightTimeout bounds the question whether the server would still accept the
// watch.
const rightTimeout = 10 * time.Second

// attempt is how others end the reflector's attempt: one connection, from
// waiting for the cluster to the end of a watch. informer.mu protects it.
//
// INVARIANT: only the reflector acts on evicted and finding, between two
// attempts. If another goroutine did, a running attempt could fill the store
// again behind its back.
type attempt struct {
	cancel    context.CancelCauseFunc // ends the attempt; nil between attempts
	evicted   bool                    // everything is to be forgotten before the next one
	forgotten []func()                // called, with the lock held, after that
	finding   error                   // of an audit
}

// doubt records why a list is due, unless that the history is over is to be
// heeded yet: a list follows that, too.
func (a *attempt) doubt(why error) {
	if !errors.Is(a.finding, ErrHistory) {
		a.finding = why
	}
}

// interrupt ends the reflector's attempt, or its wait for the next one, after
// note has been called with the lock.
func (i *informer) interrupt(why error, note func()) {
	i.mu.Lock()
	note()
	cancel := i.mu.attempt.cancel
	i.mu.Unlock()

	if cancel != nil {
		cancel(why)
	}
	i.wake.Kick()
}

// distrust makes the reflector give up its watch and list, since an audit has
// found that the store is of another history.
func (i *informer) distrust(found error) {
	i.interrupt(errAudited, func() {
		i.mu.doubt, i.mu.attempt.finding = found, found
		i.changedLocked()
	})
}

// leave is distrust if the store shows a history that is over, as another
// informer has found, and nothing is known that contradicts it.
func (i *informer) leave(over era, found error) {
	i.mu.RLock()
	shows := i.mu.synced && i.mu.doubt == nil && over == i.mu.era()
	i.mu.RUnlock()

	if shows {
		i.distrust(&elsewhereError{i.key, over, found})
	}
}

// elsewhereError is that the history which an informer shows is over, as another
// informer of the resource has found.
type elsewhereError struct {
	informer Key
	over     era
	found    error
}

func (e *elsewhereError) Error() string {
	return fmt.Sprintf("%s: found by another informer: %s", e.informer, e.found)
}

// Unwrap returns what was found.
func (e *elsewhereError) Unwrap() error { return e.found }

// doubtful makes the reflector give up its watch and list.
func (i *informer) doubtful(why error) {
	i.interrupt(errAudited, func() { i.mu.attempt.doubt(why) })
}

// right is that to the watch which an informer follows: an API server
// authorizes a watch when it begins, and then serves it for as long as it lasts.
type right struct {
	informer *informer
	round    rounds.Member[*right]
}

// check asks the server whether it would still accept the watch. The question
// is that very watch, which is ended before it carries anything; only a refusal
// is an answer. The informer then resumes, so that the server's answers to its
// own requests decide. again reports that the server gave no answer.
func (r *right) check() (again bool) {
	i := r.informer
	watch, following := r.followed()
	if !following {
		return false // its own attempts show what the server permits
	}
	ctx, cancel := context.WithTimeout(i.ctx, rightTimeout)
	defer cancel()
	s := server{informer: i, epoch: watch.Epoch}
	body, err := s.send(ctx, i.pool.options.Source.Watch, watch)
	switch {
	case err == nil:
		cancel() // before Close, which would otherwise read the rest of the body to reuse the connection
		_ = body.Close()
		return false
	case !apierrors.IsForbidden(err):
		return true
	}

	i.mu.RLock()
	end := i.mu.attempt.cancel
	i.mu.RUnlock()

	if end != nil {
		end(errForbidden)
	}
	return false
}

// followed returns a request for the watch that the informer follows, without
// bookmarks, by which clustercache knows that nothing will be read from it. The
// server has just authorized a watch that is on trial.
func (r *right) followed() (_ Request, following bool) {
	i := r.informer
	i.mu.RLock()
	defer i.mu.RUnlock()

	onTrial := i.mu.trial != nil && time.Since(i.mu.trial.accepted) < settling
	following = i.mu.follows() && !i.mu.polling && !onTrial
	opts := metav1.ListOptions{
		LabelSelector:   i.key.LabelSelector,
		FieldSelector:   i.key.FieldSelector,
		ResourceVersion: i.mu.rv,
		TimeoutSeconds:  new(int64(rightTimeout / time.Second)),
	}
	return Request{
		Key:          i.key,
		Epoch:        i.mu.epoch,
		Options:      opts,
		MetadataOnly: true,
		question:     true,
	}, following
}
