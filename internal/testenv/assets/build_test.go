// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package assets_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

// fakeGo stands in for the go command. It records its arguments and
// environment, creates one program, prints a line about it, waits for the file
// "gate" if there is a file "wait", and creates the other programs unless there
// is a file "fail".
const fakeGo = `#!/bin/sh
here=$(dirname "$0")
echo "$PWD $GOWORK $GOFLAGS $CGO_ENABLED $*" >>"$here/calls"
while [ "$1" != -o ]; do shift; done
out=$2
printf '#!/bin/sh\n' >"$out/server"
chmod +x "$out/server"
echo 'go: downloading example.com/one v1.0.0' >&2
echo example.com/one/pkg >&2
trap 'touch "$here/interrupted"; exit 1' INT
touch "$here/begun"
if [ -e "$here/wait" ]; then
	while [ ! -e "$here/gate" ]; do sleep 0.01; done
fi
if [ -e "$here/fail" ]; then
	echo 'example.com/one/pkg: does not compile' >&2
	exit 1
fi
for program in kube-apiserver etcdctl etcdutl; do
	printf '#!/bin/sh\n' >"$out/$program"
	chmod +x "$out/$program"
done
`

func (w world) fakeGo(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(w.bin, "go"), []byte(fakeGo), 0o755))
}

func (w world) touch(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(w.bin, name), nil, 0o644))
}

func (w world) remove(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(w.bin, name)))
}

// await waits until the fake go command has created a file.
func (w world) await(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat(filepath.Join(w.bin, name)); err == nil {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("no file %s", name)
		}
	}
}

func (w world) calls(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.bin, "calls"))
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// leftovers returns the files in our cache other than the target and the lock.
func (w world) leftovers(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(w.cache, "fleetcache", "testenv", "build-*"))
	require.NoError(t, err)
	return found
}

// child starts a process that looks for the programs. It does not outlive a
// failed test.
func child(t *testing.T) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envChild+"=1")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestTheBuildIsOfThePinnedModuleAndChangesNothingThere(t *testing.T) {
	w := newWorld(t)
	w.fakeGo(t)
	_, err := assets.Find(t.Context(), quiet)
	require.NoError(t, err)
	calls := w.calls(t)
	require.Len(t, calls, 1)
	require.Contains(t, calls[0], filepath.Join("internal", "testenv", "binaries")+" off -mod=readonly 0 build ")
	kubernetes, _, err := assets.Pinned()
	require.NoError(t, err)
	require.Contains(t, calls[0], "-X k8s.io/component-base/version.gitVersion="+kubernetes)
	require.Empty(t, w.leftovers(t))
}

func TestEachVersionIsBuiltByAModuleOfItsOwn(t *testing.T) {
	w := newWorld(t)
	w.fakeGo(t)
	versions, err := assets.Versions()
	require.NoError(t, err)
	require.Len(t, versions, 4)
	for i, minor := range []string{"1.33", "1.34", "1.35", "1.36"} {
		require.Contains(t, versions[i], minor+".")
		found, err := assets.FindVersion(t.Context(), minor, quiet)
		require.NoError(t, err)
		require.Contains(t, found.APIServer, "kubernetes-v"+versions[i]+"_etcd-v3.")
		again, err := assets.FindVersion(t.Context(), "v"+versions[i], quiet)
		require.NoError(t, err)
		require.Equal(t, found, again)
	}
	calls := w.calls(t)
	require.Len(t, calls, 4)
	require.Contains(t, calls[1], filepath.Join("binaries", "kubernetes-1.34")+" ")
	require.Contains(t, calls[1], "-X k8s.io/component-base/version.gitVersion=v"+versions[1])
}

func TestTheEnvironmentNamesAVersion(t *testing.T) {
	w := newWorld(t)
	w.fakeGo(t)
	dir := t.TempDir()
	programs(t, dir, "kube-apiserver", "etcd")
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	t.Setenv("FLEETCACHE_KUBERNETES", "1.34")
	found, err := assets.Find(t.Context(), quiet)
	require.NoError(t, err)
	require.Contains(t, found.APIServer, "kubernetes-v1.34.")
	t.Setenv("FLEETCACHE_KUBERNETES", "1.7")
	_, err = assets.Find(t.Context(), quiet)
	require.ErrorIs(t, err, assets.ErrUnavailable)
	require.ErrorContains(t, err, "no module builds Kubernetes 1.7, only 1.33.")
	t.Setenv("FLEETCACHE_KUBERNETES", "1.7.9")
	programs(t, w.store("1.7.9"), "kube-apiserver", "etcd")
	found, err = assets.Find(t.Context(), quiet)
	require.NoError(t, err, "what is installed needs no module")
	require.Equal(t, filepath.Join(w.store("1.7.9"), "etcd"), found.Etcd)
}

func TestTheToolsOfEtcdAreBuiltApart(t *testing.T) {
	w := newWorld(t)
	w.fakeGo(t)
	tools, err := assets.FindEtcdTools(t.Context(), quiet)
	require.NoError(t, err)
	require.FileExists(t, tools.Etcdctl)
	require.FileExists(t, tools.Etcdutl)
	again, err := assets.FindEtcdTools(t.Context(), quiet)
	require.NoError(t, err)
	require.Equal(t, tools, again)
	require.Len(t, w.calls(t), 1)
}

func TestProcessesShareOneBuild(t *testing.T) {
	w := newWorld(t)
	w.fakeGo(t)
	w.touch(t, "wait")
	children := make([]*exec.Cmd, 4)
	for i := range children {
		children[i] = child(t)
	}
	w.await(t, "begun")
	// One more process, which logs: it waits and reports for what.
	lines := make(chan string, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := assets.FindReporting(t.Context(), func(line string) { lines <- line }, time.Millisecond)
		if err != nil {
			t.Errorf("the waiting process: %v", err)
		}
	})
	require.Contains(t, <-lines, "waiting for another process: building kube-apiserver v1.36.")
	w.touch(t, "gate")
	wg.Wait()
	for _, c := range children {
		require.NoError(t, c.Wait())
	}
	require.Len(t, w.calls(t), 1)
}

func TestAKilledBuildLeavesNothingHalfMadeAndTheNextOneTakesOver(t *testing.T) {
	w := newWorld(t)
	w.fakeGo(t)
	w.touch(t, "wait")
	builder := child(t)
	w.await(t, "begun")
	waiter := child(t)

	require.NoError(t, builder.Process.Kill())
	require.Error(t, builder.Wait())
	target, err := assets.Target()
	require.NoError(t, err)
	require.NoDirExists(t, target)

	w.touch(t, "gate")
	require.NoError(t, waiter.Wait())
	require.FileExists(t, filepath.Join(target, "kube-apiserver"))
	require.FileExists(t, filepath.Join(target, "etcd"))
	require.Empty(t, w.leftovers(t))
	require.Len(t, w.calls(t), 2)
}

func TestProgressIsReportedAllTheTime(t *testing.T) {
	w := newWorld(t)
	w.fakeGo(t)
	w.touch(t, "wait")
	lines := make(chan string)
	done := make(chan error, 1)
	go func() {
		_, err := assets.FindReporting(t.Context(), func(line string) { lines <- line }, 20*time.Millisecond)
		close(lines)
		done <- err
	}()
	first := <-lines
	require.Contains(t, first, "building kube-apiserver v1.36.")
	require.Contains(t, first, "from source")
	require.Contains(t, first, w.cache)
	require.Contains(t, first, "4 to 10 minutes on two cores")
	require.Contains(t, first, "none if $KUBEBUILDER_ASSETS names a directory with both programs")
	var line string
	for !strings.Contains(line, "1 modules downloaded, 1 packages compiled") {
		line = <-lines
	}
	require.True(t, strings.HasPrefix(line, "[....................]  0 % building kube-apiserver"), line)
	w.touch(t, "gate")
	var last string
	for line := range lines {
		last = line
	}
	require.Contains(t, last, "built kube-apiserver")
	require.NoError(t, <-done)
}

func TestAFailedBuildTellsWhatTheGoCommandSaid(t *testing.T) {
	w := newWorld(t)
	w.fakeGo(t)
	w.touch(t, "fail")
	_, err := assets.Find(t.Context(), quiet)
	require.ErrorIs(t, err, assets.ErrUnavailable)
	require.ErrorContains(t, err, "example.com/one/pkg: does not compile")
	require.Empty(t, w.leftovers(t))
	w.remove(t, "fail")
	_, err = assets.Find(t.Context(), quiet)
	require.NoError(t, err)
}

func TestABuildEndsWithTheContextAndSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.fakeGo(t)
	w.touch(t, "wait")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := assets.Find(ctx, quiet)
		done <- err
	}()
	w.await(t, "begun")

	waiting := make(chan error, 1)
	waitingLines := make(chan string, 1000)
	go func() {
		_, err := assets.FindReporting(ctx, func(line string) { waitingLines <- line }, time.Hour)
		waiting <- err
	}()
	<-waitingLines

	why := errors.New("out of patience")
	cancel(why)
	require.ErrorIs(t, <-waiting, why)
	require.ErrorIs(t, <-done, why)
	w.await(t, "interrupted") // not killed, so the go command can clean up
	require.Empty(t, w.leftovers(t))
}
