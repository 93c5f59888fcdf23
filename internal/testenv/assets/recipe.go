// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Modules whose versions are those of the programs, and the packages of the
// programs.
const (
	apiServerPackage = "k8s.io/kubernetes/cmd/kube-apiserver"
	apiServerModule  = "k8s.io/kubernetes"
	etcdPackage      = "go.etcd.io/etcd/server/v3"
	etcdModule       = etcdPackage
	etcdctlPackage   = "go.etcd.io/etcd/etcdctl/v3"
	etcdutlPackage   = "go.etcd.io/etcd/etcdutl/v3"
)

// Directories of modules, below internal/testenv/binaries.
const (
	defaultModule = "."
	etcdutlModule = "etcdutl"
	otherModules  = "kubernetes-*"
)

// program is a program to build.
type program struct {
	pkg   string
	built string // the name that the go command gives it
	name  string // our name for it
}

// recipe describes what to build, from which sources, and where to put it.
type recipe struct {
	module     string // directory of the go.mod that pins the versions
	kubernetes string // version, with its v; empty if there is no API server
	etcd       string
	content    string // programs and versions, for people
	effort     string // how long it takes, for people
	packages   int    // about how many are compiled if none is cached
	programs   []program
	cache      string // directory of ours in the user's cache
	target     string // directory below cache, with a name derived from everything that determines the content
}

// controlPlane returns the recipe for the API server and etcd that a module
// pins.
func controlPlane(module string) (recipe, error) {
	r := recipe{
		module:   module,
		effort:   "4 to 10 minutes on two cores",
		packages: 2100,
		programs: []program{
			{pkg: etcdPackage, built: "server", name: etcd},
			{pkg: apiServerPackage, built: apiServer, name: apiServer},
		},
	}
	err := r.complete(func(mod []byte) (kind string, err error) {
		if r.kubernetes, err = required(mod, apiServerModule); err != nil {
			return "", err
		}
		if r.etcd, err = required(mod, etcdModule); err != nil {
			return "", err
		}
		r.content = fmt.Sprintf("kube-apiserver %s and etcd %s", r.kubernetes, r.etcd)
		return fmt.Sprintf("kubernetes-%s_etcd-%s", r.kubernetes, r.etcd), nil
	})
	return r, err
}

// etcdTools returns the recipe for the programs that save and restore
// snapshots.
func etcdTools(module string) (recipe, error) {
	r := recipe{
		module:   module,
		effort:   "half a minute on two cores",
		packages: 500,
		programs: []program{
			{pkg: etcdctlPackage, built: etcdctl, name: etcdctl},
			{pkg: etcdutlPackage, built: etcdutl, name: etcdutl},
		},
	}
	err := r.complete(func(mod []byte) (kind string, err error) {
		if r.etcd, err = required(mod, etcdutlPackage); err != nil {
			return "", err
		}
		r.content = fmt.Sprintf("etcdctl and etcdutl %s", r.etcd)
		return "etcdutl-" + r.etcd, nil
	})
	return r, err
}

// complete fills in the pinned versions and the target. It calls read with the
// contents of go.mod to get a name for the build.
func (r *recipe) complete(read func(mod []byte) (name string, err error)) error {
	mod, err := os.ReadFile(filepath.Join(r.module, "go.mod"))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(r.module, "go.sum"))
	if err != nil {
		return err
	}
	name, err := read(mod)
	if err != nil {
		return fmt.Errorf("%s: %w", r.module, err)
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the user's cache directory: %w", err)
	}
	r.cache = filepath.Join(user, "fleetcache", "testenv")
	digest := sha256.New()
	for _, part := range [][]byte{mod, sum, []byte(r.ldflags())} {
		digest.Write(fmt.Appendf(nil, "%d\n%s", len(part), part))
	}
	r.target = filepath.Join(r.cache,
		fmt.Sprintf("%s_%s-%s_%x", name, runtime.GOOS, runtime.GOARCH, digest.Sum(nil)[:6]))

	return nil
}

// controlPlanes returns the recipes of all control planes, oldest first.
func controlPlanes() ([]recipe, error) {
	root, err := moduleDir()
	if err != nil {
		return nil, err
	}
	modules, err := filepath.Glob(filepath.Join(root, otherModules))
	if err != nil {
		return nil, err
	}
	all := make([]recipe, 0, len(modules)+1)
	for _, module := range append(modules, filepath.Join(root, defaultModule)) {
		r, err := controlPlane(module)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}

	slices.SortFunc(all, func(a, b recipe) int {
		order, _ := version.MustParseGeneric(a.kubernetes).Compare(b.kubernetes)
		return order
	})

	return all, nil
}

// choose returns the recipe for a version, given as 1.34.4 or as 1.34.
func choose(given string) (recipe, error) {
	all, err := controlPlanes()
	if err != nil {
		return recipe{}, err
	}
	known := make([]string, 0, len(all))
	for _, r := range all {
		if r.kubernetes == "v"+given || strings.HasPrefix(r.kubernetes, "v"+given+".") {
			return r, nil
		}
		known = append(known, strings.TrimPrefix(r.kubernetes, "v"))
	}

	return recipe{}, fmt.Errorf("no module builds Kubernetes %s, only %s", given, strings.Join(known, ", "))
}

// moduleDir finds the directory of the pinning go.mod: beside this package or,
// for a binary built with -trimpath, in the checkout around the working
// directory. The directory cannot be embedded, because it is a module of its
// own.
func moduleDir() (string, error) {
	var tried []string
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		tried = append(tried, filepath.Join(filepath.Dir(filepath.Dir(file)), "binaries"))
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for parent := ""; parent != dir; dir = filepath.Dir(dir) {
		tried = append(tried, filepath.Join(dir, "internal", "testenv", "binaries"))
		parent = filepath.Dir(dir)
	}
	for _, candidate := range tried {
		if _, err := os.Stat(filepath.Join(candidate, "go.mod")); err == nil {
			return candidate, nil
		}
	}

	return "", errors.New("internal/testenv/binaries/go.mod, which pins what to build, is nowhere: " +
		"not run from a checkout of fleetcache?")
}

// required returns the version of a module that a go.mod requires.
func required(mod []byte, module string) (string, error) {
	line := regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(module) + `\s+(v\d+\.\d+\.\d+\S*)`)
	found := line.FindSubmatch(mod)
	if found == nil {
		return "", fmt.Errorf("go.mod requires no version of %s", module)
	}
	return string(found[1]), nil
}

// ldflags stamps the versions into the programs: a Kubernetes built as a
// dependency does not know its own version.
func (r recipe) ldflags() string {
	flags := []string{"-s", "-w"}
	if r.kubernetes == "" {
		return strings.Join(flags, " ")
	}
	number := strings.Split(strings.TrimPrefix(r.kubernetes, "v"), ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range [][2]string{
			{"gitVersion", r.kubernetes},
			{"gitMajor", number[0]},
			{"gitMinor", number[1]},
			{"gitCommit", "unknown"},
			{"gitTreeState", "clean"},
		} {
			flags = append(flags, fmt.Sprintf("-X %s.%s=%s", pkg, v[0], v[1]))
		}
	}

	flags = append(flags, "-X go.etcd.io/etcd/api/v3/version.GitSHA="+r.etcd)

	return strings.Join(flags, " ")
}
