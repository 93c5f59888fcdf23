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
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetcache/fleetcache/gc"
)

// SetupWithManager is [New], with the scheme and the logger of the manager
// where the options have none, and the manager's own cluster as the hub that
// Options.DialPolicy knows, if it names none. It makes the manager run the
// cache, and adds HealthzCheck and ReadyzCheck to the manager's, named
// fleetcache, or fleetcache-Name where Options.Name is set. A manager that runs
// already takes no more checks; then the cache runs without them, and the log
// says so. The errors are those of New and of the manager.
//
// Without a GC.InUse, owners are looked for in the manager's own cluster, by
// one small request to the API server each, as [OwnerExists] does. Owners
// without a kind or a name are kept, and so are those of kinds that the
// operator may not read, or that the cluster does not serve. Where owners are
// not objects of that cluster, set GC.InUse.
func SetupWithManager(mgr manager.Manager, o Options) (*ClusterCache, error) {
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

	// They fail only where the manager runs: it serves the checks that it was
	// started with. A missing check is no reason to do without the clusters.
	healthz := mgr.AddHealthzCheck(name, cc.HealthzCheck())
	readyz := mgr.AddReadyzCheck(name, cc.ReadyzCheck())
	if err := errors.Join(healthz, readyz); err != nil {
		cc.log.Info("The manager has no checks of this cluster cache", "cause", err.Error())
	}
	return cc, mgr.Add(cc)
}

// Logger returns what the ClusterCache logs with: Options.Logger, by the name
// "fleetcache".
func (cc *ClusterCache) Logger() logr.Logger { return cc.log }

// hubOwners is the default of GC.InUse under a manager.
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
	if owner.GVK.Kind == "" || owner.GVK.Version == "" || owner.Name == "" {
		return true, nil // no object
	}
	exists, err := OwnerExists(h.hub())(ctx, owner)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil && exists:
		h.met[owner.GVK] = struct{}{}
		return true, nil
	case err == nil:
		// Nothing says that owners are objects of the hub. If they are objects
		// of remote clusters, this line is the way to find out.
		if _, met := h.met[owner.GVK]; !met {
			h.once("An owner is not found in the manager's cluster, and what it declared is let go; if owners of this kind are "+
				"objects of other clusters, set Options.GC.InUse", owner, "owner", owner)
		}
		return false, nil
	case ctx.Err() != nil:
		return false, err
	}
	h.once("Owners of a kind cannot be looked for: those that vanish without Drop keep what they declared", owner, "cause", err.Error())
	return false, gc.ErrPartial
}

// once logs a line for each kind of owners.
func (h *hubOwners) once(line string, owner Owner, keys ...any) {
	kind := kindName(owner.GVK)
	if _, logged := h.logged[line+kind]; logged {
		return
	}
	h.logged[line+kind] = struct{}{}
	h.log.Info(line, append([]any{"kind", kind}, keys...)...)
}
