// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// misdirected reports whether an error may mean that the requested resource is
// not the one that serves the kind.
func misdirected(err error) bool {
	return apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) || errors.Is(err, informerpool.ErrOtherVersion)
}
