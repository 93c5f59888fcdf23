// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fileScan is what the files said at one time. It does not change.
type fileScan struct {
	answers map[Cluster]answer
	// dirs are the directories in which something has to change for the answers to change.
	dirs map[string]struct{}
}

// scan reads all files.
func (f *FileResolver) scan() *fileScan {
	out := &fileScan{answers: map[Cluster]answer{}, dirs: map[string]struct{}{}}
	for _, root := range f.paths {
		for _, path := range f.expand(root, out) {
			f.scanFile(path, out)
		}
	}
	return out
}

// expand returns the files that a given path stands for.
func (f *FileResolver) expand(root string, out *fileScan) []string {
	info, err := os.Stat(root)
	if err != nil || !info.IsDir() {
		out.dirs[filepath.Dir(root)] = struct{}{}
		return []string{root}
	}
	out.dirs[root] = struct{}{}
	entries, err := os.ReadDir(root)
	if err != nil {
		return f.knownBelow(root)
	}
	var files []string
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if info, err := os.Stat(path); strings.HasPrefix(entry.Name(), ".") || err == nil && info.IsDir() {
			continue
		}
		files = append(files, path)
	}
	return files
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
	// A link's target may be replaced in its own directory.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		out.dirs[filepath.Dir(target)] = struct{}{}
	}
	ref := ObjectRef{Kind: kindFile, Name: path}
	config, err := readKubeconfigFile(path, f.options.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		f.remember(path, nil)
		return
	}
	if err != nil {
		for _, context := range f.contexts(path) {
			f.put(out, path, context, Access{}, ref, err)
		}
		return
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(config.Contexts)), func(name string) bool { return name == "" })
	f.remember(path, names)
	for _, name := range names {
		access, files, err := fromContext(config, name, f.options.Allow, filepath.Dir(path), []ObjectRef{ref})
		for _, file := range files {
			out.dirs[filepath.Dir(file)] = struct{}{}
		}
		f.put(out, path, name, access, ref, err)
	}
}

func (f *FileResolver) remember(path string, contexts []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if contexts == nil {
		delete(f.known, path)
		return
	}
	f.known[path] = contexts
}

func (f *FileResolver) contexts(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known[path]
}

// put adds the answer for one context. Two answers for one cluster make an error of both.
func (f *FileResolver) put(out *fileScan, path, context string, access Access, ref ObjectRef, err error) {
	cluster, ok := f.options.ID(path, context)
	if !ok {
		return
	}
	if _, taken := out.answers[cluster]; taken {
		access, err = Access{}, invalid("", "is one of several that describe this cluster")
	}
	if err != nil {
		err = fail(cluster, ref, err)
	}
	out.answers[cluster] = answer{access: access, err: err}
}
