// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"errors"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache"
)

// Options select the clusters of a read, and say how it proceeds. They are an
// option of [List] and [ByCluster], beside those that select objects. The zero
// value selects every cluster. A pointer to Options is the same option. A
// second Options is an error.
type Options struct {
	// Clusters are the clusters to read, known or not. Nil means every cluster
	// that the ClusterCache knows when the iteration begins, and every one that
	// the resolver lists. Of the latter, those that this replica does not know,
	// because others own them, are not read, and fail with ErrUnknownCluster
	// and ErrNotOwner.
	Clusters []client.ObjectKey
	// ClusterSelector narrows Clusters by the labels of clusters
	// (resolver.Access.Labels) when the iteration begins: what is relabeled
	// during it stays as it was. A cluster whose labels are not known yet may
	// belong to the selection, and fails with [ErrLabelsUnknown]. Nil selects
	// all.
	ClusterSelector labels.Selector
	// Owned leaves out the clusters that this replica does not own, by
	// clustercache.Options.Sharding. So the sums of all replicas have each
	// cluster once, although standbys cache it, too.
	Owned bool
	// Sorted yields the clusters, and the objects of each, by namespace and
	// name. Answers are held back until all before them have been yielded.
	// Without it, those come first, by namespace and name, that take no
	// request, and the others as they arrive, each with its objects in no
	// order.
	Sorted bool
	// Concurrency is how many API servers are queried at once. One that takes
	// four times as long as the others did no longer counts, so that those that
	// hang do not delay the rest. Answers from the cache do not count. Defaults
	// to 16.
	Concurrency int
	// Timeout bounds the answer of one API server, however many pages it has.
	// Defaults to clustercache.Options.RequestTimeout, which is 30 s.
	Timeout time.Duration
}

// ApplyToList implements client.ListOption. It has no effect on other lists.
func (Options) ApplyToList(*client.ListOptions) {}

var (
	_ client.ListOption = Options{}
	_ client.ListOption = (*Options)(nil)
	_ client.ListOption = (*Total)(nil)
)

var (
	// ErrLabelsUnknown indicates that it is not known yet whether
	// Options.ClusterSelector selects a cluster: the resolver has not given
	// access to it. The error wraps why the cluster is not connected.
	ErrLabelsUnknown = errors.New("labels of the cluster are not known")

	errNoneKnown = errors.New("no cluster is known: set Discover in the options of the ClusterCache, " +
		"Engage clusters, or name them in Options.Clusters")

	errNoKind   = errors.New("required")
	errTwice    = errors.New("given twice, and only one set can count")
	errNegative = errors.New("must not be negative")
	errPaged    = errors.New("a read of many clusters has no pages; leave the loop instead")
	errOfOne    = errors.New("concerns a single cluster; an Answer has its own Origin")
)

// newRead returns the read that options describe.
func newRead(cc *clustercache.ClusterCache, kind client.Object, opts []client.ListOption) (*read, error) {
	r := &read{cc: cc, kind: kind, total: &Total{}}
	asked := client.ListOptions{}
	given := 0
	for _, opt := range opts {
		switch own := opt.(type) {
		case nil:
		case Options:
			r.options = own
			given++
		case *Options:
			if own == nil {
				return nil, &clustercache.OptionError{Field: "Options", Err: errNoKind}
			}
			r.options = *own
			given++
		case *Total:
			if own == nil {
				return nil, &clustercache.OptionError{Field: "Total", Err: errNoKind}
			}
			r.total = own
		case *clustercache.Origin:
			return nil, &clustercache.OptionError{Field: "Origin", Err: errOfOne}
		case clustercache.NotOlderThan:
			return nil, &clustercache.OptionError{Field: "NotOlderThan", Err: errOfOne}
		default:
			opt.ApplyToList(&asked)
			r.each = append(r.each, opt)
		}
	}

	if cc == nil {
		return nil, &clustercache.OptionError{Field: "cc", Err: errNoKind}
	}
	switch v := reflect.ValueOf(kind); {
	case !v.IsValid() || v.Kind() != reflect.Pointer || v.IsNil():
		return nil, &clustercache.OptionError{Field: "Kind", Err: errNoKind}
	case given > 1:
		return nil, &clustercache.OptionError{Field: "Options", Err: errTwice}
	case asked.Limit != 0 || asked.Continue != "":
		return nil, &clustercache.OptionError{Field: "Limit", Err: errPaged}
	case r.options.Concurrency < 0:
		return nil, &clustercache.OptionError{Field: "Concurrency", Err: errNegative}
	case r.options.Timeout < 0:
		return nil, &clustercache.OptionError{Field: "Timeout", Err: errNegative}
	}
	r.options.Concurrency = cmp.Or(r.options.Concurrency, 16)
	r.options.Timeout = cmp.Or(r.options.Timeout, cc.Options().RequestTimeout)

	var err error
	if r.gvk, err = apiutil.GVKForObject(kind, cc.Options().Scheme); err != nil {
		return nil, &clustercache.OptionError{Field: "Kind", Err: err}
	}

	return r, nil
}
