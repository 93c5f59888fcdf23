// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/informerpool"
)

// newWants returns the set of what is wanted of a cluster.
func newWants(c *cluster) *watchset.Set {
	o := &c.cc.options
	return watchset.New(watchset.Config{
		Cluster:        c.key,
		Name:           c.name,
		Logger:         c.cc.log,
		Context:        c.cc.ctx,
		Pool:           c.cc.pool,
		Mapper:         c.mapper,
		Timers:         c.cc.timers,
		LookUp:         c.cc.lookUp.submit,
		RequestTimeout: o.RequestTimeout,
		RetryInterval:  o.RetryInterval,
		IdleTimeout:    o.IdleTimeout,
		Connected:      func() bool { return c.conn.View().Connected },
		Epoch:          func() informerpool.Epoch { return c.conn.View().Epoch },
		AddIndexes: func(lease *informerpool.Lease, gvk schema.GroupVersionKind) {
			c.cc.addIndexes(c, lease, gvk)
		},
		OnBound: func(w *watchset.Want) {
			for _, f := range c.cc.subscriptions() {
				f.leaseAdded(c, w)
			}
		},
		OnEmpty: c.letGo,
	})
}

// acquire takes a reference to a selection of a cluster; auto makes it that of
// reads in mode AutoWatch. It creates a cluster that is being forgotten at this
// moment again.
func (cc *ClusterCache) acquire(
	key client.ObjectKey, id watchset.Selection, auto bool,
) (*cluster, *watchset.Want, error) {
	for {
		c, err := cc.engage(key, false)
		if err != nil {
			return nil, nil, &ClusterError{
				Cluster: key,
				GVK:     id.GVK,
				Op:      "watch",
				Err:     ErrClosed,
			}
		}

		var w *watchset.Want
		if auto {
			w = c.wants.Keep(id)
		} else {
			w = c.wants.Acquire(id)
		}

		if w != nil {
			// The cluster may have been forgotten between the two calls: now
			// that it is wanted it must return.
			if c.conn.View().Phase == phase.Gone {
				c.conn.Ask()
			}
			return c, w, nil
		}
	}
}

// selection returns what an object and options select.
func (cc *ClusterCache) selection(obj client.Object, opts []client.ListOption) (watchset.Selection, error) {
	if isNil(obj) {
		return watchset.Selection{}, errNilObject
	}
	gvk, err := apiutil.GVKForObject(obj, cc.options.Scheme)
	if err != nil {
		return watchset.Selection{}, err
	}
	o := client.ListOptions{}
	for _, opt := range opts {
		if opt != nil {
			opt.ApplyToList(&o)
		}
	}

	return watchset.Select(gvk, &o)
}

// informerFailed is called with the failed attempts of informers.
func (cc *ClusterCache) informerFailed(key informerpool.Key, err error) {
	if misdirected(err) || apierrors.IsNotFound(err) {
		if c := cc.find(key.Cluster); c != nil {
			c.wants.RemapSoon()
		}
	}
	if told := cc.options.Informers.OnFailed; told != nil {
		told(key, err)
	}
}

// misdirected reports whether an error may mean that the requested resource is
// not the one that serves the kind.
func misdirected(err error) bool {
	return apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) || errors.Is(err, informerpool.ErrOtherVersion)
}
