// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleetcache/fleetcache/internal/callback"
)

// SelectResolver narrows another resolver to the clusters with certain labels.
// It has the methods of [Notifier] and [Lister] whatever that resolver is:
// [AsNotifier] and [AsLister] report which of them are meaningful.
type SelectResolver struct {
	of       Resolver
	selector labels.Selector
	all      bool // of reports every change

	mu struct {
		sync.Mutex

		notifying int
		left      map[Cluster]struct{} // clusters that are not selected; kept while notifying
	}
}

var (
	_ Resolver = (*SelectResolver)(nil)
	_ Notifier = (*SelectResolver)(nil)
	_ Lister   = (*SelectResolver)(nil)
)

// Select returns a resolver of those clusters of another one whose labels
// ([Access.Labels]) match. For it, a cluster that does not match does not
// exist: a ClusterCache disconnects a cluster whose labels cease to match, and
// discovers one whose labels begin to. A cluster without access has no labels
// that are known. It stays, so that its status shows the reason.
//
// Where the labels are those of the objects that describe clusters,
// [HubOptions.Selector] costs less: the hub then sends no other objects. It does
// not see the labels of a [ReadyObject].
func Select(clusters Resolver, selector labels.Selector) (*SelectResolver, error) {
	if clusters == nil || selector == nil {
		return nil, errors.New("resolver: Select needs a resolver and a selector")
	}
	s := &SelectResolver{of: clusters, selector: selector}
	_, s.all = AsNotifier(clusters)
	s.mu.left = map[Cluster]struct{}{}

	return s, nil
}

// notSelectedError is an ErrClusterNotFound.
type notSelectedError struct{ selector string }

func (e *notSelectedError) Error() string {
	return fmt.Sprintf("%v: its labels do not match %s", ErrClusterNotFound, e.selector)
}

func (*notSelectedError) Unwrap() error { return ErrClusterNotFound }

// String names the resolver, as far as it has a name, and the labels.
func (s *SelectResolver) String() string {
	text := "clusters with the label " + s.selector.String()
	if named, ok := s.of.(fmt.Stringer); ok {
		text += " of " + named.String()
	}
	return text
}

// Resolve implements [Resolver]. A cluster that does not match is an
// [ErrClusterNotFound].
func (s *SelectResolver) Resolve(ctx context.Context, cluster Cluster) (Access, error) {
	access, err := s.of.Resolve(ctx, cluster)
	if err == nil && !s.selector.Matches(labels.Set(access.labels)) {
		return Access{}, fail(cluster, ObjectRef{}, &notSelectedError{s.selector.String()})
	}
	return access, err
}

// ask resolves a cluster for Notify and Clusters, which wait for it: if its
// resolver hangs or panics, that is an error of the cluster, and of no other.
func (s *SelectResolver) ask(ctx context.Context, cluster Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	_, err := callback.Until(ctx, nil, "Resolver.Resolve",
		func() (Access, error) { return s.Resolve(ctx, cluster) }, func(Access, error) {})
	return err
}

// Notify implements [Notifier]. It resolves each cluster that is reported: a
// change of a cluster that is not selected, before and after it, is not passed
// on. One whose answer takes longer than 30 s has labels that are not known.
func (s *SelectResolver) Notify(ctx context.Context, changed func(Cluster)) error {
	n, _ := AsNotifier(s.of)
	if n == nil {
		<-ctx.Done()
		return nil
	}
	s.mu.Lock()
	s.mu.notifying++
	s.mu.Unlock()
	defer s.stopped()

	reported := map[Cluster]struct{}{} // selected when they were last passed on
	return n.Notify(ctx, func(cluster Cluster) {
		_, was := reported[cluster]
		if s.leaves(ctx, cluster) {
			delete(reported, cluster)
			if !was {
				return
			}
		} else {
			reported[cluster] = struct{}{}
		}
		changed(cluster)
	})
}

// leaves resolves a cluster, and notes whether it is not selected. A cluster
// that was not, and whose labels cannot be known now, still is not: its trouble
// is of no interest.
func (s *SelectResolver) leaves(ctx context.Context, cluster Cluster) bool {
	err := s.ask(ctx, cluster)
	s.mu.Lock()
	defer s.mu.Unlock()

	_, was := s.mu.left[cluster]
	left := notSelected(err) || was && err != nil
	if left && (notSelected(err) || !errors.Is(err, ErrClusterNotFound)) {
		s.mu.left[cluster] = struct{}{}
	} else {
		delete(s.mu.left, cluster)
	}

	return left
}

func notSelected(err error) bool {
	_, ok := errors.AsType[*notSelectedError](err)
	return ok
}

func (s *SelectResolver) stopped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.notifying--; s.mu.notifying == 0 {
		clear(s.mu.left)
	}
}

// known reports whether Notify keeps track of which clusters are not selected,
// and whether it is known not to select this one.
func (s *SelectResolver) known(cluster Cluster) (tracked, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, left = s.mu.left[cluster]
	return s.all && s.mu.notifying > 0, left
}

// Clusters implements [Lister]. It resolves each cluster, unless Notify runs
// and reports every change: then it leaves out the clusters that Notify found
// not to be selected.
func (s *SelectResolver) Clusters(ctx context.Context) ([]Cluster, error) {
	l, ok := AsLister(s.of)
	if !ok {
		return nil, errors.New("resolver: the resolver that Select narrows lists no clusters")
	}
	all, err := l.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(cluster Cluster) bool {
		tracked, left := s.known(cluster)
		if !tracked {
			left = notSelected(s.ask(ctx, cluster))
		}
		return left
	}), ctx.Err()
}
