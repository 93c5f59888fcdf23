// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"

	"github.com/fleetcache/fleetcache/informerpool/internal/width"
)

// turn is the permission to send a list, or a question that costs the server
// about as much. The pool's permits bound how many lists run at once, so that a
// fleet that reconnects does not list all at the same moment. One counts for a
// limited time only, and for much less where lists are usually quick: clusters
// that hang must not use up the permits.
type turn struct {
	place  *width.Place
	permit func() // gives back that of the pool, and may be called more than once
}

// end records how the request ended.
func (t turn) end(err error) {
	t.permit()
	if errors.Is(err, errPolled) {
		err = nil
	}
	t.place.End(err)
}

// turn waits until the cluster has room for a request, and then for a permit of
// the pool. While the cluster has no room, it takes none from other clusters.
func (c *clusterStats) turn(ctx context.Context, s width.Subject, waits func(refusal error),
	permit func(context.Context) (func(), error)) (turn, error) {
	for {
		place, err := c.width.Reserve(ctx, s, waits)
		if err != nil {
			return turn{}, err
		}
		release, err := permit(ctx)
		if err != nil {
			place.End(err)
			return turn{}, err
		}
		if place.Send() {
			return turn{place, release}, nil
		}
		release()
	}
}

// ask asks a question when there is room for it.
func (c *clusterStats) ask(ctx context.Context, s width.Subject, waits func(error), question func() error) error {
	t, err := c.turn(ctx, s, waits, func(context.Context) (func(), error) { return func() {}, nil })
	if err != nil {
		return err
	}
	err = errUnreturned
	defer func() { t.end(err) }()
	err = question()

	return err
}

// permit waits for a permit to list.
func (p *Pool) permit(ctx context.Context) (free func(), err error) {
	free, err = p.lists.Take(ctx)
	if err == nil {
		p.burst.grows()
	}
	return free, err
}

// turn waits for the reflector's turn to list.
func (s *server) turn(ctx context.Context) (turn, error) {
	return s.informer.cluster.turn(ctx, subjectOf(&s.informer.key), s.waits, s.informer.pool.permit)
}

// ask asks a question when it is the reflector's turn.
func (s *server) ask(ctx context.Context, question func() error) error {
	return s.informer.cluster.ask(ctx, subjectOf(&s.informer.key), s.waits, question)
}

// waits records why the reflector waits for its turn.
func (s *server) waits(refusal error) {
	s.informer.progress.note(fmt.Errorf("%s: %w: %w", s.informer.key, errTurn, refusal))
}

// subjectOf returns what the requests of a key are about. The groups that no
// definition can add are those of the API server itself; any other may have an
// API server of its own.
func subjectOf(k *Key) width.Subject {
	s := width.Subject{
		Resource:  k.Resource.GroupResource().String(),
		Selection: k.Namespace + "/" + k.LabelSelector + "/" + k.FieldSelector,
	}
	if definable(k.Resource.Group) {
		s.Server = k.Resource.Group
	}
	return s
}
