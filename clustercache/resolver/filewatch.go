// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/client-go/tools/clientcmd/api"
)

const (
	// fileSettle is how long files have to remain unchanged before they are
	// read, since editors write in several steps.
	fileSettle = 100 * time.Millisecond
	// fileSettleMax ends that wait if writes never pause.
	fileSettleMax = 500 * time.Millisecond
	// fileRescan is how often files are read without a notification: network
	// file systems send none.
	fileRescan = 30 * time.Second
)

// watch is the loop behind Notify.
func (f *FileResolver) watch(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		f.options.Logger.Error(err, "cannot watch files, will read them periodically")
		watcher = &fsnotify.Watcher{} // its channels are nil, and never ready
	} else {
		defer func() { _ = watcher.Close() }()
	}

	watched := map[string]struct{}{}
	var last *fileScan
	for {
		// Watching comes before reading, so that no change falls between the
		// two. A directory that a read discovers is watched from then on, and
		// everything is read once more, which may discover another one.
		next := f.scan()
		for f.follow(watcher, watched, next.dirs) && ctx.Err() == nil {
			next = f.scan()
		}
		f.publish(last, next)
		last = next
		if !f.wait(ctx, watcher) {
			break
		}
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	// A Notify that began while this loop was ending may have put its own scan
	// here.
	if f.snapshot == last {
		f.snapshot = nil
	}
}

// follow watches the given directories instead of the present ones, and reports
// whether there are new ones.
func (f *FileResolver) follow(watcher *fsnotify.Watcher, watched, dirs map[string]struct{}) bool {
	if watcher.Events == nil {
		return false
	}
	for dir := range watched {
		if _, wanted := dirs[dir]; !wanted {
			_ = watcher.Remove(dir) // fails if the directory no longer exists
			delete(watched, dir)
		}
	}

	added := false
	for dir := range dirs {
		// Added again even if it was watched: the directory may have been
		// replaced by another of the same name.
		if err := watcher.Add(dir); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				f.options.Logger.Error(err, "cannot watch a directory, will read it periodically", "directory", dir)
			}
			delete(watched, dir)
			continue
		}

		if _, was := watched[dir]; !was {
			watched[dir] = struct{}{}
			added = true
		}
	}

	return added
}

// publish makes a scan the current one, and reports the clusters that differ.
func (f *FileResolver) publish(last, next *fileScan) {
	f.mu.Lock()
	f.snapshot = next
	f.mu.Unlock()

	if last == nil {
		last = &fileScan{}
	}
	for path, err := range next.failed {
		if before := last.failed[path]; before == nil || before.Error() != err.Error() {
			f.options.Logger.Error(err, "No kubeconfig can be read from a path", "path", path)
		}
	}
	all := maps.Clone(next.answers)
	maps.Copy(all, last.answers)
	for cluster := range all {
		before, had := last.answers[cluster]
		now, has := next.answers[cluster]
		if had != has || !before.equal(now) {
			f.changes.Publish(cluster)
		}
	}
}

// wait waits until it is time to read again; it returns false if ctx ended.
func (f *FileResolver) wait(ctx context.Context, watcher *fsnotify.Watcher) bool {
	timer := time.NewTimer(f.rescan)
	defer timer.Stop()
	var first time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-watcher.Events:
		case err := <-watcher.Errors:
			f.options.Logger.V(1).Info("lost notifications of files, reading them all", "error", err.Error())
		}

		if first.IsZero() {
			first = time.Now()
		}
		timer.Reset(min(fileSettle, fileSettleMax-time.Since(first)))
	}
}

func readKubeconfigFile(path string, maxBytes int) (*api.Config, error) {
	file, err := os.OpenFile(path, readOnly, 0)
	if err != nil {
		return nil, err
	}
	data, err := readRegular(file, maxBytes)
	if errors.Is(err, errTooBig) {
		return nil, tooBig("", maxBytes)
	}
	if err != nil {
		return nil, err
	}
	return parseKubeconfig(data, maxBytes)
}
