// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/internal/changes"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// FileOptions configure how kubeconfig files are read.
type FileOptions struct {
	// Allow is what the kubeconfigs may use. Default: nothing that needs a
	// permission; files that tools write for people, with plugins and paths,
	// usually need some.
	Allow Allow
	// Own marks the files as those of the person who runs the program: it uses
	// their contexts as kubectl would, runs the credential plugins that they
	// name, with the arguments and variables that they name, and reads the files
	// that they refer to. A plugin has no terminal. Only for a program that a
	// person starts with their own kubeconfig: authors of the files can run
	// programs in its name. Never set it for files that others write, or that
	// come from Secrets. Not together with Allow. Default: false.
	Own bool
	// MaxBytes is the size of the largest file that is read. Default:
	// [DefaultMaxBytes], and 16 MiB with Own: dozens of contexts with
	// certificates are larger than what a stranger may have parsed.
	MaxBytes int
	// ID returns the cluster that a context of a file describes, or false to
	// ignore the context. It is not called for a context without a name, which
	// is a cluster with an error. A context for which ID returns an empty
	// cluster name is one too: the empty name would be the hub's. Default: no
	// namespace, and the name "path+context" with the file's absolute path.
	ID func(path, context string) (Cluster, bool)
	// Labels returns the labels of a cluster. Default: none.
	Labels func(path, context string) map[string]string
	// Logger receives errors about files that cannot be watched. Default: none.
	Logger logr.Logger
}

// maxOwnBytes is the default of FileOptions.MaxBytes with Own.
const maxOwnBytes = 16 << 20

// ByContext is a [FileOptions.ID]: the cluster has the name of the context, and
// no namespace, as kubectl's users know it. Contexts of the same name in several
// files are an error.
func ByContext(_, context string) (Cluster, bool) { return Cluster{Name: context}, true }

// FileResolver resolves clusters from kubeconfig files: every context of every
// file is a cluster.
//
// While Notify runs, Resolve and Clusters answer from the last read. Files are
// read again when something changes in their directories, and every half minute
// in case a change was missed. Otherwise each call reads the files. All methods
// are safe for concurrent use.
type FileResolver struct {
	paths   []string
	options FileOptions
	changes changes.Broadcaster
	loop    changes.Loop
	rescan  time.Duration
	byPath  bool // clusters have the default ID

	mu       sync.Mutex // protects the fields below
	known    map[string][]string
	ids      map[string]map[string]fileID // last result of ID, by path and context
	seen     map[string]bool              // given paths that have existed
	snapshot *fileScan                    // of the running loop
}

var (
	_ Resolver = (*FileResolver)(nil)
	_ Notifier = (*FileResolver)(nil)
	_ Lister   = (*FileResolver)(nil)
)

// Files resolves clusters from kubeconfig files, and from all files of
// directories except those whose name begins with a dot; sub-directories are
// not entered. Unlike in kubectl, files are not merged: contexts and users of
// the same name in two files stay apart, and a cluster that two files describe
// (by a custom ID) is an error.
//
// A file may be replaced by a rename or, as in a mounted Secret, by a change of
// links. A file that cannot be read or understood keeps the clusters it had,
// with an error. If it had none, a cluster with the file's path as name,
// without a namespace, represents the file, and its error describes the
// problem. The same holds for a path that never existed, until it does.
// Patterns are not expanded, and a list of paths such as KUBECONFIG must be
// split by the caller. A file that existed and is deleted has no clusters. But
// the clusters of a directory that vanished as a whole, like a volume that is
// not mounted, stay with an error until the directory exists again without
// them; that may be a given directory, that of a given file, or one that a link
// leads into. If no path leads to any context, Clusters returns an error, so
// that a ClusterCache that discovers clusters is not ready.
func Files(options FileOptions, paths ...string) (*FileResolver, error) {
	if len(paths) == 0 {
		return nil, errors.New("resolver: Files needs a path")
	}
	if options.MaxBytes < 0 {
		return nil, errors.New("resolver: MaxBytes is negative")
	}
	if options.Own && !reflect.ValueOf(options.Allow).IsZero() {
		return nil, errors.New("resolver: Own files need no Allow")
	}
	if options.Allow.Files != "" && !filepath.IsAbs(options.Allow.Files) {
		return nil, errors.New("resolver: Allow.Files is not an absolute path")
	}
	switch {
	case options.MaxBytes > 0:
	case options.Own:
		options.MaxBytes = maxOwnBytes
	default:
		options.MaxBytes = DefaultMaxBytes
	}
	byPath := options.ID == nil
	if byPath {
		options.ID = func(path, context string) (Cluster, bool) { return Cluster{Name: path + "+" + context}, true }
	}
	if options.Logger.GetSink() == nil {
		options.Logger = logr.Discard()
	}
	f := &FileResolver{
		options: options,
		byPath:  byPath,
		rescan:  fileRescan,
		known:   map[string][]string{},
		ids:     map[string]map[string]fileID{},
		seen:    map[string]bool{},
	}
	for _, path := range paths {
		if path == "" {
			return nil, errors.New("resolver: Files was given an empty path") // which would read the working directory
		}
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("resolver: %w", err)
		}
		f.paths = append(f.paths, absolute)
	}

	f.loop.Run = f.watch

	return f, nil
}

// Resolve implements [Resolver].
func (f *FileResolver) Resolve(_ context.Context, cluster Cluster) (Access, error) {
	scan := f.current()
	found, ok := scan.answers[cluster]
	if !ok {
		return Access{}, f.missing(scan, cluster)
	}
	return found.access, found.err
}

// Notify implements [Notifier].
func (f *FileResolver) Notify(ctx context.Context, changed func(Cluster)) error {
	reader := f.changes.Subscribe()
	defer f.changes.Unsubscribe(reader)
	defer f.loop.Hold(ctx)()
	reader.Add(slices.Collect(maps.Keys(f.current().answers))...)
	reader.Deliver(ctx, changed)

	return nil
}

// Clusters implements [Lister].
func (f *FileResolver) Clusters(context.Context) ([]Cluster, error) {
	scan := f.current()
	if len(scan.failed) > 0 && len(scan.failed) == len(scan.answers) {
		return nil, fmt.Errorf("resolver: no kubeconfig can be read: %w", scan.failures())
	}
	return slices.SortedFunc(maps.Keys(scan.answers), clustername.Compare), nil
}

// missing returns the error for a cluster that is in no file that could be
// read. If the cluster may be in an unreadable file, the error leaves open
// whether it exists. A file that cannot be understood weighs more than a path
// where no file ever was.
func (f *FileResolver) missing(scan *fileScan, cluster Cluster) error {
	var out error
	for _, path := range slices.Sorted(maps.Keys(scan.failed)) {
		if f.byPath && !strings.HasPrefix(cluster.Name, path+"+") {
			continue
		}
		if cause := scan.failed[path]; out == nil || errors.Is(out, ErrNoAccess) && !errors.Is(cause, ErrNoAccess) {
			out = fail(cluster, ObjectRef{Kind: kindFile, Name: path}, cause)
		}
	}

	if out == nil {
		return fail(cluster, ObjectRef{}, ErrClusterNotFound)
	}
	return out
}

// current returns the last scan of a running loop, or a new one.
func (f *FileResolver) current() *fileScan {
	f.mu.Lock()
	snapshot := f.snapshot
	f.mu.Unlock()

	if snapshot != nil {
		return snapshot
	}
	return f.scan()
}
