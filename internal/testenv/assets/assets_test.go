// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package assets_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

// envChild turns this test binary into a process that only looks for the
// programs.
const envChild = "FLEETCACHE_ASSETS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		_, err := assets.Find(context.Background(), func(string) {})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// world is an empty home directory: nothing is installed or built.
type world struct {
	data, cache, bin string
}

func newWorld(t *testing.T) world {
	t.Helper()
	dir := t.TempDir()
	w := world{data: filepath.Join(dir, "data"), cache: filepath.Join(dir, "cache"), bin: filepath.Join(dir, "bin")}
	for _, d := range []string{w.data, w.cache, w.bin} {
		require.NoError(t, os.Mkdir(d, 0o755))
	}
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("FLEETCACHE_KUBERNETES", "")
	t.Setenv("HOME", dir)
	t.Setenv("XDG_DATA_HOME", w.data)
	t.Setenv("XDG_CACHE_HOME", w.cache)
	t.Setenv("PATH", w.bin+":/usr/bin:/bin")
	return w
}

func programs(t *testing.T, dir string, names ...string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
}

func (w world) store(number string) string {
	base := filepath.Join(w.data, "kubebuilder-envtest", "k8s")
	if runtime.GOOS == "darwin" {
		base = filepath.Join(filepath.Dir(w.data), "Library/Application Support/io.kubebuilder.envtest/k8s")
	}
	return filepath.Join(base, number+"-"+runtime.GOOS+"-"+runtime.GOARCH)
}

func quiet(string) {}

func TestTheAssetsDirectoryComesFirst(t *testing.T) {
	w := newWorld(t)
	programs(t, w.store("1.99.0"), "kube-apiserver", "etcd")
	dir := t.TempDir()
	programs(t, dir, "kube-apiserver", "etcd")
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	found, err := assets.Find(t.Context(), quiet)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "kube-apiserver"), found.APIServer)
	require.Equal(t, filepath.Join(dir, "etcd"), found.Etcd)
}

func TestAnAssetsDirectoryWithoutAProgramIsAnErrorThatNamesIt(t *testing.T) {
	w := newWorld(t)
	programs(t, w.store("1.99.0"), "kube-apiserver", "etcd")
	dir := t.TempDir()
	programs(t, dir, "kube-apiserver")
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	_, err := assets.Find(t.Context(), quiet)
	require.ErrorIs(t, err, assets.ErrUnavailable)
	require.ErrorContains(t, err, filepath.Join(dir, "etcd"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o644))
	_, err = assets.Find(t.Context(), quiet)
	require.ErrorContains(t, err, "not an executable file")
}

func TestTheNewestCompleteInstalledVersionIsTaken(t *testing.T) {
	w := newWorld(t)
	programs(t, w.store("1.36.9"), "kube-apiserver", "etcd")
	programs(t, w.store("1.36.10"), "kube-apiserver", "etcd")
	programs(t, w.store("1.37.0"), "kube-apiserver")
	programs(t, filepath.Join(filepath.Dir(w.store("x")), "1.99.0-plan9-mips"), "kube-apiserver", "etcd")
	found, err := assets.Find(t.Context(), quiet)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(w.store("1.36.10"), "etcd"), found.Etcd)
}

func TestAnInstalledVersionThatIsTooOldIsNotTaken(t *testing.T) {
	w := newWorld(t)
	programs(t, w.store("1.33.9"), "kube-apiserver", "etcd")
	_, err := assets.Find(t.Context(), quiet)
	require.ErrorIs(t, err, exec.ErrNotFound, "it should have tried to build")
}

func TestAFinishedBuildIsUsedWithoutTheGoCommand(t *testing.T) {
	newWorld(t)
	target, err := assets.Target()
	require.NoError(t, err)
	programs(t, target, "kube-apiserver", "etcd")
	found, err := assets.Find(t.Context(), quiet)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(target, "kube-apiserver"), found.APIServer)
}

func TestWithoutAnythingTheErrorSaysWhatWouldHelp(t *testing.T) {
	newWorld(t)
	_, err := assets.Find(t.Context(), quiet)
	require.ErrorIs(t, err, assets.ErrUnavailable)
	require.ErrorIs(t, err, exec.ErrNotFound)
	for _, help := range []string{"go command", "KUBEBUILDER_ASSETS", "setup-envtest"} {
		require.ErrorContains(t, err, help)
	}
}

func TestTheVersionsAreThePinnedOnes(t *testing.T) {
	newWorld(t)
	kubernetes, etcd, err := assets.Pinned()
	require.NoError(t, err)
	require.Regexp(t, `^v1\.36\.\d+$`, kubernetes)
	require.Regexp(t, `^v3\.6\.\d+$`, etcd)
}
