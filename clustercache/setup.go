// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetcache/fleetcache/gc"
)

// SetupWithManager is New with the manager's scheme and logger, and with its
// cluster as Options.DialPolicy's hub, where the options have none. The manager
// runs the cache, and serves HealthzCheck and ReadyzCheck under the name
// fleetcache, or fleetcache-Name if Options.Name is set; and, as
// fleetcache-sharding, the ReadyzCheck of Options.Sharding if it has one. The
// errors are those of New and of the manager.
//
// Without a GC.InUse, owners are looked up in the manager's cluster, as
// [OwnerExists] does; those of kinds that it does not serve, or that the
// operator may not read, are kept.
func SetupWithManager(mgr manager.Manager, o Options) (*ClusterCache, error) {
	if mgr == nil {
		return nil, &OptionError{Field: "mgr", Err: errNilCallback}
	}
	if o.Scheme == nil {
		o.Scheme = mgr.GetScheme()
	}
	if o.Logger.GetSink() == nil {
		o.Logger = mgr.GetLogger()
	}
	if hub := mgr.GetConfig(); len(o.DialPolicy.Hub) == 0 && hub != nil && hub.Host != "" {
		o.DialPolicy.Hub = []string{hub.Host}
	}
	if o.GC.InUse == nil {
		o.GC.InUse = newHubOwners(mgr.GetAPIReader, o.Logger).inUse
	}
	name := "fleetcache"
	if o.Name != "" {
		name += "-" + o.Name
	}
	cc, err := New(o)
	if err != nil {
		return nil, err
	}

	// They fail only if the manager runs: it serves the checks that it was
	// started with. A missing check is no reason not to run the cache.
	errs := []error{mgr.AddHealthzCheck(name, cc.HealthzCheck()), mgr.AddReadyzCheck(name, cc.ReadyzCheck())}
	if share, ok := o.Sharding.(interface{ ReadyzCheck() healthz.Checker }); ok {
		errs = append(errs, mgr.AddReadyzCheck(name+"-sharding", share.ReadyzCheck()))
	}
	if err := errors.Join(errs...); err != nil {
		cc.log.Info("The manager has no checks of this cluster cache", "cause", err.Error())
	}

	return cc, mgr.Add(cc)
}

// hubOwners is the default of GC.InUse with a manager.
type hubOwners struct {
	hub func() client.Reader
	log logr.Logger

	mu     sync.Mutex // protects what follows
	met    map[schema.GroupVersionKind]struct{}
	logged map[string]struct{}
}

func newHubOwners(hub func() client.Reader, log logr.Logger) *hubOwners {
	return &hubOwners{
		hub:    hub,
		log:    log.WithName("fleetcache"),
		met:    map[schema.GroupVersionKind]struct{}{},
		logged: map[string]struct{}{},
	}
}

func (h *hubOwners) inUse(ctx context.Context, owner Owner) (bool, error) {
	exists, err := OwnerExists(h.hub())(ctx, owner)
	h.mu.Lock()
	defer h.mu.Unlock()

	switch {
	case err == nil && exists:
		h.met[owner.GVK] = struct{}{}
		return true, nil
	case err == nil:
		// Owners need not be objects of the hub. If they are objects of remote
		// clusters, only this line reveals it.
		if _, met := h.met[owner.GVK]; !met {
			h.once("An owner is not found in the manager's cluster, and what it declared is let go; "+
				"if owners of this kind are objects of other clusters, set Options.GC.InUse", owner, "owner", owner)
		}
		return false, nil
	case ctx.Err() != nil:
		return false, err
	}

	h.once("Owners of a kind cannot be looked for: those that vanish without Drop keep what they declared", owner,
		"cause", err.Error())

	return false, gc.ErrPartial
}

// once logs a line once for each kind of owner.
func (h *hubOwners) once(line string, owner Owner, keys ...any) {
	kind := kindName(owner.GVK)
	if _, logged := h.logged[line+kind]; logged {
		return
	}
	h.logged[line+kind] = struct{}{}
	h.log.Info(line, append([]any{"kind", kind}, keys...)...)
}
