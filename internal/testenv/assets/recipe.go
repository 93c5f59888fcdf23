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
	"strings"
)

// The main packages of the programs, and the modules whose versions are theirs.
const (
	apiServerPackage = "k8s.io/kubernetes/cmd/kube-apiserver"
	apiServerModule  = "k8s.io/kubernetes"
	etcdPackage      = "go.etcd.io/etcd/server/v3"
	etcdModule       = etcdPackage
)

// recipe is what is built, from what, and where it goes.
type recipe struct {
	module     string // directory of the go.mod that pins the versions
	kubernetes string // version, with its v
	etcd       string
	cache      string // directory of ours in the user's cache
	target     string // directory below cache, named by everything that decides the content
}

// loadRecipe reads the pinned versions.
func loadRecipe() (recipe, error) {
	module, err := moduleDir()
	if err != nil {
		return recipe{}, err
	}
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return recipe{}, err
	}
	sum, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return recipe{}, err
	}
	r := recipe{module: module}
	if r.kubernetes, err = required(mod, apiServerModule); err != nil {
		return recipe{}, err
	}
	if r.etcd, err = required(mod, etcdModule); err != nil {
		return recipe{}, err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return recipe{}, fmt.Errorf("find the user's cache directory: %w", err)
	}
	r.cache = filepath.Join(user, "fleetcache", "testenv")
	digest := sha256.New()
	for _, part := range [][]byte{mod, sum, []byte(r.ldflags())} {
		digest.Write(fmt.Appendf(nil, "%d\n%s", len(part), part))
	}
	r.target = filepath.Join(r.cache, fmt.Sprintf("kubernetes-%s_etcd-%s_%s-%s_%x",
		r.kubernetes, r.etcd, runtime.GOOS, runtime.GOARCH, digest.Sum(nil)[:6]))
	return r, nil
}

// moduleDir finds the directory of the pinning go.mod: beside this package or,
// in a binary built with -trimpath, in the checkout around the working directory.
// It cannot be embedded, for it is a module of its own.
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
	return "", errors.New("internal/testenv/binaries/go.mod, which pins what to build, is nowhere: not run from a checkout of fleetcache?")
}

// required returns the version a go.mod requires of a module.
func required(mod []byte, module string) (string, error) {
	line := regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(module) + `\s+(v\d+\.\d+\.\d+\S*)`)
	found := line.FindSubmatch(mod)
	if found == nil {
		return "", fmt.Errorf("go.mod requires no version of %s", module)
	}
	return string(found[1]), nil
}

// ldflags stamps the versions: a Kubernetes built as a dependency does not know
// its own.
func (r recipe) ldflags() string {
	flags := []string{"-s", "-w"}
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
