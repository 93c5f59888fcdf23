// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// linger is how long the streams continue after no kind is missing any more: a
// kind that comes and goes, or an owner that declares it by turns, costs no
// further requests.
const linger = time.Minute

const (
	// settle is how long discovery may lag behind a definition: in that time
	// after a change, Changed is called again and again.
	settle = 5 * time.Second
	// settled is settle for the changes before a stream began.
	settled = time.Second
	// firstPause is the time between the first two of these calls. It doubles
	// up to maxPause, which also bounds how often a server that reports changes
	// without an end is queried.
	firstPause = 100 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// resources are what defines which kinds are served. The names of their objects
// end with the group: widgets.example.com, and v1.example.com.
var resources = []schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}

// Config describes the cluster of a [Watcher].
type Config struct {
	Cluster types.NamespacedName
	// Context ends the work of the watcher.
	Context context.Context //nolint:containedctx // that of the ClusterCache, for work without a caller
	// Source reaches the cluster.
	Source informerpool.Source
	// Spawn starts a goroutine, for whose end the owner waits. It returns false
	// if the owner has ended. It is called under a lock of the watcher.
	Spawn func(func()) bool
	// Changed is called when discovery may have changed for groups that are
	// wanted. It must not block.
	Changed func()
}

// Watcher watches the definitions of one cluster while groups are wanted.
type Watcher struct {
	config Config

	mu struct { // nothing but the lock of Config.Spawn is taken under it
		sync.Mutex

		groups map[string]bool
		cancel context.CancelFunc // ends the streams; nil while there are none
		idle   *time.Timer        // ends them after a while; nil while groups are wanted
		closed bool

		until time.Time // when the calls of Changed end; zero: none is under way
	}
}

// New returns a watcher without streams.
func New(c Config) *Watcher { return &Watcher{config: c} }

// Want sets the API groups in which kinds are missing. It does not wait.
func (w *Watcher) Want(groups map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if len(groups) == 0 && w.mu.cancel == nil {
		return
	}
	w.mu.groups = groups
	switch {
	case len(groups) == 0 && w.mu.idle == nil:
		w.mu.idle = time.AfterFunc(linger, w.expire)
	case len(groups) > 0 && w.mu.idle != nil:
		w.mu.idle.Stop()
		w.mu.idle = nil
	}
	if len(groups) > 0 && w.mu.cancel == nil && !w.mu.closed {
		w.startLocked()
	}
}

func (w *Watcher) startLocked() {
	ctx, cancel := context.WithCancel(w.config.Context)
	for _, resource := range resources {
		s := &stream{watcher: w, key: informerpool.Key{Cluster: w.config.Cluster, Resource: resource}}
		if !w.config.Spawn(func() { s.run(ctx) }) {
			cancel()
			return
		}
	}
	w.mu.cancel = cancel
}

// expire ends the streams, unless groups are wanted again.
func (w *Watcher) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.idle != nil && len(w.mu.groups) == 0 {
		w.endLocked()
	}
}

func (w *Watcher) endLocked() {
	if w.mu.idle != nil {
		w.mu.idle.Stop()
	}
	if w.mu.cancel != nil {
		w.mu.cancel()
	}
	w.mu.idle, w.mu.cancel = nil, nil
}

// Close ends the streams for good. It is idempotent and does not wait.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.closed = true
	w.endLocked()
}

// wants reports whether a kind of the group is missing.
func (w *Watcher) wants(group string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.groups[group]
}

// changed calls Changed, now and for as long as discovery may lag behind.
func (w *Watcher) changed(ctx context.Context, lag time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()

	begin := w.mu.until.IsZero()
	if until := time.Now().Add(lag); until.After(w.mu.until) {
		w.mu.until = until
	}
	if !begin {
		return
	}
	if !w.config.Spawn(func() { w.repeat(ctx) }) {
		w.mu.until = time.Time{}
	}
}

// repeat calls Changed until no change was noticed for a while.
func (w *Watcher) repeat(ctx context.Context) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		w.config.Changed()
		w.mu.Lock()
		done := len(w.mu.groups) == 0 || time.Now().Add(pause).After(w.mu.until)
		if done {
			w.mu.until = time.Time{}
		}
		w.mu.Unlock()

		if done {
			return // another one may have begun by now
		}
		if !timetable.Sleep(ctx, pause) {
			w.mu.Lock()
			w.mu.until = time.Time{}
			w.mu.Unlock()
			return
		}
	}
}
