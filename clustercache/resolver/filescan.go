// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetcache/fleetcache/internal/callback"
)

// fileScan is the content of the files at one time. It does not change.
type fileScan struct {
	answers map[Cluster]answer
	// failed are the paths that are represented by a cluster of their own, and
	// why.
	failed map[string]error
	// dirs are the directories in which something must change for the answers
	// to change.
	dirs map[string]struct{}
}

// scan reads all files.
func (f *FileResolver) scan() *fileScan {
	out := &fileScan{answers: map[Cluster]answer{}, failed: map[string]error{}, dirs: map[string]struct{}{}}
	for _, root := range f.paths {
		for _, path := range f.expand(root, out) {
			f.scanFile(path, out)
		}
	}
	return out
}

// expand returns the files that a given path refers to.
func (f *FileResolver) expand(root string, out *fileScan) []string {
	info, err := os.Stat(root)
	f.noteSeen(root, err == nil)
	if err != nil || !info.IsDir() {
		out.watchTo(root)
		if err != nil && f.keepBelow(out, root, err) {
			return nil
		}
		return []string{root}
	}

	out.watchTo(filepath.Join(root, "any file"))
	entries, err := os.ReadDir(root)
	if err != nil {
		if !f.keepBelow(out, root, err) {
			f.standFor(out, root, err)
		}
		return nil
	}

	var files []string
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if info, err := os.Stat(path); strings.HasPrefix(entry.Name(), ".") || err == nil && !info.Mode().IsRegular() {
			continue
		}
		files = append(files, path)
	}

	for _, path := range f.knownBelow(root) {
		if !slices.Contains(files, path) {
			f.remember(path, nil)
		}
	}

	return files
}

// keepBelow keeps the clusters of the files in a directory that cannot be read,
// or that vanished as a whole, like a volume that is not mounted. It reports
// whether there are any.
func (f *FileResolver) keepBelow(out *fileScan, root string, err error) bool {
	known := f.knownBelow(root)
	for _, path := range known {
		f.keep(out, path, unreadableDirectory(err))
	}
	return len(known) > 0
}

// unreadableDirectory is the error for the clusters of the files in a directory.
func unreadableDirectory(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return fmt.Errorf("its directory cannot be read: %w", err)
}

// missingDirectory returns an error if a file does not exist because its
// directory, or that of the file that it links to, does not.
func missingDirectory(path string) error {
	_, end := follow(path)
	if _, err := os.Stat(filepath.Dir(end)); err != nil {
		return unreadableDirectory(err)
	}
	return nil
}

// maxLinks is how many links are followed, as by Linux.
const maxLinks = 40

// follow returns the links on the way to a file or directory, which need not
// exist, and the path without them.
func follow(path string) (links []string, end string) {
	for range maxLinks {
		link := firstLink(path)
		target, err := os.Readlink(link)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		links, path = append(links, link), filepath.Join(target, path[len(link):])
	}
	return links, path
}

// firstLink returns the beginning of an absolute path that is a link, if there
// is one.
func firstLink(path string) string {
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != filepath.Separator {
			continue
		}
		info, err := os.Lstat(path[:end])
		switch {
		case err != nil:
			return ""
		case info.Mode()&fs.ModeSymlink != 0:
			return path[:end]
		}
	}
	return ""
}

// watchTo notes the directories in which a file, or a link on the way to it, can
// be replaced, none of them by two names.
func (s *fileScan) watchTo(path string) {
	links, end := follow(path)
	for _, each := range append(links, end) {
		s.dirs[filepath.Dir(each)] = struct{}{}
	}
}

// keep keeps the clusters of a file, with an error, and reports whether there
// are any.
func (f *FileResolver) keep(out *fileScan, path string, err error) bool {
	known := f.contexts(path)
	for _, context := range known {
		f.put(out, path, context, Access{}, ObjectRef{Kind: kindFile, Name: path}, err)
	}
	return len(known) > 0
}

// knownBelow returns the files that a directory had when it could be read.
func (f *FileResolver) knownBelow(root string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	var out []string
	for path := range f.known {
		if filepath.Dir(path) == root {
			out = append(out, path)
		}
	}
	slices.Sort(out)

	return out
}

// scanFile adds the contexts of one file.
func (f *FileResolver) scanFile(path string, out *fileScan) {
	out.watchTo(path)
	ref := ObjectRef{Kind: kindFile, Name: path}
	config, err := readKubeconfigFile(path, f.options.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		if missing := missingDirectory(path); missing != nil && f.keep(out, path, missing) {
			return
		}
		f.remember(path, nil)
		if f.neverSeen(path) {
			f.standFor(out, path, missingFileError{})
		}
		return
	}

	if err != nil {
		if !f.keep(out, path, err) {
			f.standFor(out, path, err)
		}
		return
	}

	names := slices.Sorted(maps.Keys(config.Contexts))
	f.remember(path, names)
	if !slices.ContainsFunc(names, func(name string) bool { return name != "" }) {
		f.standFor(out, path, invalid("contexts", "has none with a name"))
		return
	}
	for _, name := range names {
		access, files, err := f.read(config, name, path, ref)
		for _, file := range files {
			out.watchTo(file)
		}
		f.put(out, path, name, access, ref, err)
	}
}

// read makes the access of one context.
func (f *FileResolver) read(config *api.Config, name, path string, ref ObjectRef) (Access, []string, error) {
	if f.options.Own {
		return fromOwnContext(config, name, filepath.Dir(path), []ObjectRef{ref})
	}
	return fromContext(config, name, f.options.Allow, filepath.Dir(path), []ObjectRef{ref})
}

func (f *FileResolver) remember(path string, contexts []string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if contexts == nil {
		delete(f.known, path)
		delete(f.ids, path)
		return
	}
	f.known[path] = contexts
	maps.DeleteFunc(f.ids[path], func(context string, _ fileID) bool { return !slices.Contains(contexts, context) })
}

// fileID is the result of ID for a context of a file.
type fileID struct {
	cluster Cluster
	ours    bool
}

// identify returns the cluster that a context describes, and why that cannot be
// used. A context without a usable name is identified by the path and its name;
// one on which ID panics by the last result of ID.
func (f *FileResolver) identify(out *fileScan, path, context string) (Cluster, bool, error) {
	standIn := Cluster{Name: strconv.QuoteToASCII(path + "+" + context)}
	if context == "" {
		return standIn, true, invalid("context.name", "is empty")
	}
	var said fileID
	err := callback.ApartSecret("FileOptions.ID", func() error {
		said.cluster, said.ours = f.options.ID(path, context)
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()

	switch before, known := f.ids[path][context]; {
	case err != nil && known:
		said = before
	case err != nil:
		out.failed[path] = err // which cluster it is remains unknown
		return standIn, true, err
	case f.ids[path] == nil:
		f.ids[path] = map[string]fileID{context: said}
	default:
		f.ids[path][context] = said
	}

	why := cmp.Or(checkText(said.cluster.Namespace), checkText(said.cluster.Name))
	if said.cluster.Name == "" {
		why = "is empty, and would be the hub's"
	}
	if said.ours && why != "" {
		return standIn, true, invalid("context.name", why)
	}
	return said.cluster, said.ours, err
}

// standFor adds a cluster for a path without known contexts, so that a mistyped
// path or a broken file is visible where clusters are.
func (f *FileResolver) standFor(out *fileScan, path string, err error) {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("cannot be read: %w", pathErr.Err)
	}
	cluster := Cluster{Name: path}
	if checkText(path) != "" {
		cluster.Name = strconv.QuoteToASCII(path)
	}
	if _, taken := out.answers[cluster]; taken {
		return // by a custom ID
	}
	out.failed[path] = err
	out.answers[cluster] = answer{err: fail(cluster, ObjectRef{Kind: kindFile, Name: path}, err)}
}

// failures joins the errors of all paths, in order.
func (s *fileScan) failures() error {
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(s.failed)) {
		errs = append(errs, fmt.Errorf("%s: %w", strconv.Quote(path), s.failed[path]))
	}
	return errors.Join(errs...)
}

// noteSeen records whether a given path existed: a path that existed and
// vanished was deleted, while one that never existed is a mistake, or will
// appear later.
func (f *FileResolver) noteSeen(root string, exists bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[root] = f.seen[root] || exists
}

func (f *FileResolver) neverSeen(path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, given := f.seen[path]
	return given && !seen
}

func (f *FileResolver) contexts(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known[path]
}

// put adds the answer for one context. Two answers for one cluster turn both
// into an error.
func (f *FileResolver) put(out *fileScan, path, context string, access Access, ref ObjectRef, err error) {
	cluster, ok, unnamed := f.identify(out, path, context)
	if !ok {
		return
	}
	if unnamed != nil {
		access, err = Access{}, unnamed
	}
	if err == nil && f.options.Labels != nil {
		err = callback.ApartSecret("FileOptions.Labels", func() error {
			access = access.WithLabels(f.options.Labels(path, context))
			return nil
		})
	}
	if _, taken := out.answers[cluster]; taken {
		access, err = Access{}, invalid("", "is one of several that describe this cluster")
	}
	if err != nil {
		err = fail(cluster, ref, err)
	}
	out.answers[cluster] = answer{access: access, err: err}
}
