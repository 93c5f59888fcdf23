// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package assets locates the programs of a Kubernetes control plane, or builds
// them from source.
//
// [Find] tries these sources in order:
//
//  1. the version FLEETCACHE_KUBERNETES names, if it is set, as by
//     [FindVersion];
//  2. the directory KUBEBUILDER_ASSETS names, if it is set;
//  3. the newest version setup-envtest has installed, from v1.34 on;
//  4. our own build in the user's cache directory (XDG_CACHE_HOME or its
//     equivalent), which is made at first use.
//
// The default build uses the versions in internal/testenv/binaries/go.mod;
// other versions have modules of their own beside it, one for each minor
// version. A build needs the go command, the module proxy and 4 to 10 minutes on
// two cores. It happens once: processes that need it at the same time wait for
// one of them, and a build is visible only when it is complete.
package assets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// ErrUnavailable indicates that the programs were not found and could not be
// built. The error that wraps it describes the reason and possible remedies.
var ErrUnavailable = errors.New("control plane binaries are not available")

const (
	apiServer  = "kube-apiserver"
	etcd       = "etcd"
	etcdctl    = "etcdctl"
	etcdutl    = "etcdutl"
	envAssets  = "KUBEBUILDER_ASSETS"
	envVersion = "FLEETCACHE_KUBERNETES"
)

// oldest is the first version whose API server streams lists by default.
var oldest = version.MajorMinor(1, 34)

// Binaries are the programs of a control plane.
type Binaries struct {
	APIServer string // path of kube-apiserver
	Etcd      string // path of etcd
	Source    string // where they come from, for people
}

// Find returns the programs, and builds them if necessary. A build takes
// minutes; meanwhile Find calls log with a line of progress at least every 10
// s. If ctx ends, Find gives up; what has been compiled by then stays in Go's
// build cache.
func Find(ctx context.Context, log func(line string)) (Binaries, error) {
	return find(ctx, log, 5*time.Second)
}

func find(ctx context.Context, log func(string), every time.Duration) (Binaries, error) {
	if given := os.Getenv(envVersion); given != "" {
		found, err := findVersion(ctx, given, log, every)
		if err != nil {
			return Binaries{}, fmt.Errorf("%s is %q: %w", envVersion, given, err)
		}
		return found, nil
	}

	if dir := os.Getenv(envAssets); dir != "" {
		found, err := inDir(dir, "$"+envAssets)
		if err != nil {
			return Binaries{}, fmt.Errorf("%w: %s is set, but %w", ErrUnavailable, envAssets, err)
		}
		return found, nil
	}

	if found, ok := installed(); ok {
		return found, nil
	}
	root, err := moduleDir()
	if err != nil {
		return Binaries{}, unavailable(err)
	}
	r, err := controlPlane(filepath.Join(root, defaultModule))
	if err != nil {
		return Binaries{}, unavailable(err)
	}
	r.effort += "; none if $" + envAssets + " names a directory with both programs"

	return r.binaries(ctx, log, every)
}

// FindVersion returns the programs of a version of Kubernetes, given as 1.34.4
// or as 1.34. They are either exactly that version as installed by
// setup-envtest, or our own build, for which there must be a module. Otherwise
// FindVersion is like [Find].
func FindVersion(ctx context.Context, kubernetes string, log func(line string)) (Binaries, error) {
	return findVersion(ctx, kubernetes, log, 5*time.Second)
}

func findVersion(ctx context.Context, given string, log func(string), every time.Duration) (Binaries, error) {
	given = strings.TrimPrefix(given, "v")
	if dir, err := installedDir(given); err == nil {
		if found, err := inDir(dir, "setup-envtest"); err == nil {
			return found, nil
		}
	}
	r, err := choose(given)
	if err != nil {
		return Binaries{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return r.binaries(ctx, log, every)
}

// Versions returns the versions of Kubernetes that [FindVersion] can build,
// oldest first and without a v. There is one for each minor version that
// upstream supports.
func Versions() ([]string, error) {
	all, err := controlPlanes()
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(all))
	for _, r := range all {
		out = append(out, strings.TrimPrefix(r.kubernetes, "v"))
	}
	return out, nil
}

// EtcdTools are the programs that save and restore snapshots of etcd.
type EtcdTools struct {
	Etcdctl string // path
	Etcdutl string // path
}

// FindEtcdTools returns the programs. Like [Find] it builds them if necessary,
// which takes half a minute.
func FindEtcdTools(ctx context.Context, log func(line string)) (EtcdTools, error) {
	root, err := moduleDir()
	if err != nil {
		return EtcdTools{}, unavailable(err)
	}
	r, err := etcdTools(filepath.Join(root, etcdutlModule))
	if err != nil {
		return EtcdTools{}, unavailable(err)
	}
	if err := r.ensure(ctx, log, 5*time.Second); err != nil {
		return EtcdTools{}, err
	}
	return EtcdTools{Etcdctl: filepath.Join(r.target, etcdctl), Etcdutl: filepath.Join(r.target, etcdutl)}, nil
}

// binaries returns the programs of a control plane, and builds them if
// necessary.
func (r recipe) binaries(ctx context.Context, log func(string), every time.Duration) (Binaries, error) {
	if err := r.ensure(ctx, log, every); err != nil {
		return Binaries{}, err
	}
	found, err := inDir(r.target, "own build")
	if err != nil {
		return Binaries{}, unavailable(err)
	}
	return found, nil
}

// ensure builds the programs if necessary.
func (r recipe) ensure(ctx context.Context, log func(string), every time.Duration) error {
	b := builder{recipe: r, log: log, every: every}
	if err := b.ensure(ctx); err != nil {
		return unavailable(err)
	}
	return nil
}

// unavailable adds possible remedies to an error.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w\n"+
		"They are built from source at first use, which needs the go command and the Go module proxy,\n"+
		"or taken from the directory $%s names, or from what setup-envtest has installed", ErrUnavailable,
		err, envAssets)
}

// inDir returns the programs in a directory, which must contain both.
func inDir(dir, source string) (Binaries, error) {
	found := Binaries{
		APIServer: filepath.Join(dir, apiServer),
		Etcd:      filepath.Join(dir, etcd),
		Source:    fmt.Sprintf("%s (%s)", source, dir),
	}
	for _, path := range []string{found.APIServer, found.Etcd} {
		if err := executable(path); err != nil {
			return Binaries{}, err
		}
	}
	return found, nil
}

// executable returns an error naming the file if it cannot be executed.
func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
}

// installedDir returns the directory in which setup-envtest keeps a version.
func installedDir(number string) (string, error) {
	store, err := envtest.SetupEnvtestDefaultBinaryAssetsDirectory()
	if err != nil {
		return "", err
	}
	return filepath.Join(store, number+"-"+runtime.GOOS+"-"+runtime.GOARCH), nil
}

// installed returns the newest complete version in setup-envtest's store.
func installed() (Binaries, bool) {
	store, err := envtest.SetupEnvtestDefaultBinaryAssetsDirectory()
	if err != nil {
		return Binaries{}, false
	}
	entries, err := os.ReadDir(store)
	if err != nil {
		return Binaries{}, false
	}
	var best Binaries
	newest := oldest
	for _, entry := range entries {
		number, ok := strings.CutSuffix(entry.Name(), "-"+runtime.GOOS+"-"+runtime.GOARCH)
		if !ok {
			continue
		}
		v, err := version.ParseGeneric(number)
		if err != nil || v.LessThan(newest) {
			continue
		}
		found, err := inDir(filepath.Join(store, entry.Name()), "setup-envtest")
		if err != nil {
			continue
		}
		best, newest = found, v
	}

	return best, best.APIServer != ""
}
