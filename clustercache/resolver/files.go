// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// FileOptions say how kubeconfig files are read.
type FileOptions struct {
	// Allow is what the kubeconfigs may ask for. Default: nothing that needs a permission; so the files that
	// tools write for people, with plugins and paths, need some.
	Allow Allow
	// MaxBytes is the largest file that is read. Default: [DefaultMaxBytes].
	MaxBytes int
	// ID says which cluster a context of a file stands for; false ignores it. Default: no namespace, and the name
	// "path+context" with the file's absolute path.
	ID func(path, context string) (Cluster, bool)
	// Logger is told about files that cannot be watched. Default: none.
	Logger logr.Logger
}

// FileResolver resolves clusters from kubeconfig files: every context of every file is a cluster.
//
// While Notify runs, Resolve and Clusters answer from what was read last, and files are read again when something
// changes in their directories, and every half minute in case that was not noticed. Otherwise each call reads
// the files. All methods are safe for concurrent use.
type FileResolver struct {
	paths   []string
	options FileOptions
	news    news
	loop    sharedLoop
	rescan  time.Duration

	mu       sync.Mutex // protects what follows
	known    map[string][]string
	snapshot *fileScan // of the running loop
}

var (
	_ Resolver = (*FileResolver)(nil)
	_ Notifier = (*FileResolver)(nil)
	_ Lister   = (*FileResolver)(nil)
)

// Files resolves clusters from kubeconfig files, and from all files of directories except those whose name begins with a
// dot; sub-directories are not entered. Files are not merged, unlike kubectl does: contexts and users of the same name
// in two files stay apart, and a cluster that two files describe (by a custom ID) is an error.
//
// A file may be replaced by a rename or, as in a mounted Secret, by a change of links. A file that does not exist has no
// clusters; one that cannot be read or understood keeps those it had, with an error.
func Files(options FileOptions, paths ...string) (*FileResolver, error) {
	if len(paths) == 0 {
		return nil, errors.New("resolver: Files needs a path")
	}
	if options.MaxBytes < 0 {
		return nil, errors.New("resolver: MaxBytes is negative")
	}
	if options.Allow.Files != "" && !filepath.IsAbs(options.Allow.Files) {
		return nil, errors.New("resolver: Allow.Files is not an absolute path")
	}
	if options.MaxBytes == 0 {
		options.MaxBytes = DefaultMaxBytes
	}
	if options.ID == nil {
		options.ID = func(path, context string) (Cluster, bool) { return Cluster{Name: path + "+" + context}, true }
	}
	if options.Logger.GetSink() == nil {
		options.Logger = logr.Discard()
	}
	f := &FileResolver{options: options, rescan: fileRescan, known: map[string][]string{}}
	for _, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("resolver: %w", err)
		}
		f.paths = append(f.paths, absolute)
	}
	f.loop.run = f.watch
	return f, nil
}

// Resolve implements [Resolver].
func (f *FileResolver) Resolve(_ context.Context, cluster Cluster) (Access, error) {
	found, ok := f.current().answers[cluster]
	if !ok {
		return Access{}, fail(cluster, ObjectRef{}, ErrClusterNotFound)
	}
	return found.access, found.err
}

// Notify implements [Notifier].
func (f *FileResolver) Notify(ctx context.Context, changed func(Cluster)) error {
	reader := f.news.subscribe()
	defer f.news.unsubscribe(reader)
	defer f.loop.hold(ctx)()
	reader.add(slices.Collect(maps.Keys(f.current().answers))...)
	reader.deliver(ctx, changed)
	return nil
}

// Clusters implements [Lister].
func (f *FileResolver) Clusters(context.Context) ([]Cluster, error) {
	return slices.SortedFunc(maps.Keys(f.current().answers), compareClusters), nil
}

// current returns what was read last, or reads.
func (f *FileResolver) current() *fileScan {
	f.mu.Lock()
	snapshot := f.snapshot
	f.mu.Unlock()
	if snapshot != nil {
		return snapshot
	}
	return f.scan()
}
