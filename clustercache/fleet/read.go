// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
)

// errTimeout is why a query ends that exceeds Options.Timeout.
var errTimeout = fmt.Errorf("no answer within the Timeout of the read: %w", context.DeadlineExceeded)

// read is one read of many clusters.
type read struct {
	cc      *clustercache.ClusterCache
	kind    client.Object
	gvk     schema.GroupVersionKind
	options Options
	each    []client.ListOption // of the list of each cluster
	total   *Total
}

// result is the answer of one cluster, or why there is none.
type result struct {
	target

	objects []*informerpool.Object
	origin  clustercache.Origin
}

// results yields one result for each target, and counts it.
func (r *read) results(ctx context.Context) iter.Seq[result] {
	return func(yield func(result) bool) {
		targets := r.targets()
		r.total.Clusters = len(targets)
		all := r.asTheyCome(ctx, targets)
		if r.options.Sorted {
			all = inOrder(all)
		}

		for of := range all {
			r.total.count(of)
			if !yield(of) {
				return
			}
		}
	}
}

// asTheyCome yields first what takes no request, by namespace and name. The API
// servers are queried meanwhile, on goroutines that end with the iteration.
func (r *read) asTheyCome(ctx context.Context, targets []target) iter.Seq[result] {
	return func(yield func(result) bool) {
		queries := newQueries(ctx, r, len(targets))
		defer queries.stop()

		for _, t := range targets {
			of, asks := r.list(ctx, t, false)
			if asks {
				queries.add(t)
			} else if !yield(of) {
				return
			}
		}

		for of, ok := queries.next(); ok; of, ok = queries.next() {
			if !yield(of) {
				return
			}
		}
	}
}

// list reads one cluster. Where the API server would have to be queried, it
// does so if live is set, and otherwise reports that it would.
func (r *read) list(ctx context.Context, t target, live bool) (of result, asks bool) {
	of.target = t
	if t.err != nil {
		return of, false
	}
	opts := append(make([]client.ListOption, 0, len(r.each)+1), r.each...)
	of.objects, asks, of.err = r.lister(t.key).ListPacked(ctx, r.kind, live, append(opts, &of.origin)...)
	switch {
	case of.err == nil:
	case ctx.Err() != nil:
		of.err = r.fail(t.key, context.Cause(ctx))
	default:
		of.err = r.fail(t.key, of.err)
	}

	return of, asks
}

// lister lists the packed objects of one cluster. Every result of
// Cluster.Reader is one.
type lister interface {
	// ListPacked is the List of the reader without the decoding: it takes the
	// same options, answers from the same places, and fails with the same
	// errors. The slice belongs to the caller; the objects are shared and
	// read-only. Of a kind that is given as metadata, objects that the API
	// server returns have no more than that.
	//
	// Where the API server would have to be queried, ListPacked does so if live
	// is set. Otherwise it does no I/O, and the second result is true.
	ListPacked(
		ctx context.Context, kind client.Object, live bool, opts ...client.ListOption,
	) ([]*informerpool.Object, bool, error)
	// Decode decodes a packed object, as reads do. The caller owns the result.
	Decode(o *informerpool.Object, dst client.Object) error
}

// lister returns the reader of a cluster.
func (r *read) lister(cluster client.ObjectKey) lister {
	return r.cc.Cluster(cluster).Reader().(lister) //nolint:forcetypeassert // as the type says
}

// unlisted returns why there may be clusters that are not among the targets.
func (r *read) unlisted() error {
	if r.options.Clusters != nil {
		return nil
	}
	if err := r.cc.ReadyzCheck()(nil); err != nil {
		return err
	}

	select {
	case <-r.cc.Started():
		if !r.cc.Options().Discover && len(r.cc.Clusters()) == 0 {
			return errNoneKnown
		}
		return nil
	default: // with Options.LeaderOnly, a replica is ready before that
		return clustercache.ErrNotStarted
	}
}
