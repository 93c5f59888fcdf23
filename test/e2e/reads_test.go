// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
)

// audience reads an estate in all modes and forms, whatever happens to its
// cluster, and remembers the highest version it has seen in each history.
type audience struct {
	*estate

	random *rand.Rand
	wrong  *atomic.Pointer[string]
	reads  *atomic.Int64
	seen   map[string]string // epoch and object, to the highest version
	latest string            // the version of a cached result
}

// mode returns random options for a read.
func (a *audience) mode() []client.ListOption {
	switch a.random.IntN(6) {
	case 0:
		return []client.ListOption{clustercache.PreferCache}
	case 1:
		return []client.ListOption{clustercache.AutoWatch}
	case 2:
		return []client.ListOption{clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour)}
	case 3:
		return []client.ListOption{clustercache.PreferCache, clustercache.MaxStaleness(time.Second)}
	case 4:
		return []client.ListOption{clustercache.PreferCache, clustercache.NotOlderThan(a.latest)}
	}
	return []client.ListOption{clustercache.CacheOnly}
}

// read reads until ctx ends.
func (a *audience) read(ctx context.Context) {
	for ctx.Err() == nil {
		f := a.followers[a.random.IntN(len(a.followers))]
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		a.list(one, f)
		cancel()
		pause(ctx, 20*time.Millisecond)
	}
}

func (a *audience) list(ctx context.Context, f *follower) {
	var origin clustercache.Origin
	asked := a.latest
	options := append(append(f.options(a.s.t), a.mode()...), &origin)
	var objects []client.Object
	if a.random.IntN(3) == 0 {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(f.list().GroupVersionKind())
		if a.s.Cluster(a.key).Reader().List(ctx, list, options...) != nil {
			return
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	} else {
		list := f.list()
		if a.s.Cluster(a.key).Reader().List(ctx, list, options...) != nil {
			return
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
	a.reads.Add(1)
	a.judge(f, &origin, asked, options, objects)
}

// judge checks the result of a read. A result from the API server may be older
// than what the cache showed before, because a history that was rolled back is
// detected only with the next watch. No object of a cached result may go back,
// and none may come from another cluster. The version of the result itself may
// go back: an informer may serve it at a lower version than another one did
// before, provided that it lacks nothing that the other one showed.
func (a *audience) judge(f *follower, origin *clustercache.Origin, asked string, options []client.ListOption,
	objects []client.Object) {
	for _, o := range objects {
		if from := o.GetAnnotations()["from"]; from != "" && from != a.from {
			a.say("%s shows %s of %s", a.key, place(o), from)
		}
	}
	if !origin.Cached {
		return
	}
	for _, option := range options {
		if _, ok := option.(clustercache.NotOlderThan); ok && older(origin.ResourceVersion, asked) {
			a.say("%s: %s at %s is older than %s, which was asked for", a.key, f.selection, origin.ResourceVersion,
				asked)
		}
	}
	for _, o := range objects {
		a.floor(origin.Epoch+" "+f.String()+" "+place(o), o.GetResourceVersion())
	}
	a.latest = origin.ResourceVersion
}

// floor requires that versions do not go back.
func (a *audience) floor(what, version string) {
	if older(version, a.seen[what]) {
		a.say("%s: %s was at %s, and then at %s", a.key, what, a.seen[what], version)
	}
	a.seen[what] = version
}

func (a *audience) say(format string, args ...any) {
	a.wrong.CompareAndSwap(nil, new(fmt.Sprintf(format, args...)))
}

// older reports whether a version is lower than another one, if that is known.
func older(version, than string) bool {
	if than == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order < 0
}
