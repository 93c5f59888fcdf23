// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// envPart makes this test binary play a role instead of running its tests: a
// program with clusters that ends in some way.
const envPart = "FLEETCACHE_TESTENV_PART"

// play starts a cluster as the role requires, prints "ready" and ends as the
// role requires, or waits to be killed.
func play(part string) {
	switch part {
	case "run": // as an example does
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		env, err := testenv.Run(ctx, 1)
		must(err)
		fmt.Println("ready")
		<-ctx.Done()
		stop()
		must(env.Stop())
		os.Exit(0)
	default: // as a test does
		testenv.Start(&fakeTB{}, 1)
		fmt.Println("ready")
		switch part {
		case "panic": // a test timeout also panics
			go panic("the end")
		case "exit":
			os.Exit(3)
		}
		select {}
	}
}

// fakeTB stands in for a test that runs forever, or whose failure is observed.
type fakeTB struct {
	testing.TB

	failed   string
	cleanups []func()
	deadline time.Time
}

func (f *fakeTB) Deadline() (time.Time, bool) { return f.deadline, !f.deadline.IsZero() }

func (*fakeTB) Helper() {}

func (f *fakeTB) Cleanup(cleanup func()) { f.cleanups = append(f.cleanups, cleanup) }

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.failed += fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// player is a process that plays a role.
type player struct {
	*exec.Cmd

	out  *bufio.Reader
	temp string // where its clusters' directories are
	errs bytes.Buffer
}

func newPlayer(t *testing.T, part string) *player {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &player{Cmd: exec.Command(self), temp: t.TempDir()}
	p.Env = append(os.Environ(), envPart+"="+part, "TMPDIR="+p.temp)
	p.Stderr = &p.errs
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.Start())
	t.Cleanup(func() { // for a test that fails; otherwise the test has waited already
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// ready waits until the clusters are running, or were a moment ago.
func (p *player) ready(t *testing.T) {
	t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		require.NoError(t, err, "%s", &p.errs)
		if line == "ready\n" {
			return
		}
	}
}

func (p *player) processes(t *testing.T) map[int]string {
	t.Helper()
	found, err := testenv.ProcessesUnder(p.temp)
	require.NoError(t, err)
	return found
}

func (p *player) directories(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.temp, testenv.DirPrefix+"*"))
	require.NoError(t, err)
	return found
}

// interrupt signals the whole process group, as a terminal does.
func (p *player) interrupt(t *testing.T, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(-p.Process.Pid, sig))
}

// nothingIsLeft checks that no process and no file is left. The process must
// have been waited for.
func (p *player) nothingIsLeft(t *testing.T) {
	t.Helper()
	require.Empty(t, p.processes(t))
	require.Empty(t, p.directories(t))
}

// until waits for a condition that becomes true within moments, on a machine
// that is not busy.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	ctx := soon(t, time.Minute)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !condition() {
		select {
		case <-look.C:
		case <-ctx.Done():
			require.NoError(t, ctx.Err())
		}
	}
}

func TestAnInterruptedTestLeavesNothingWhenItIsGone(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := newPlayer(t, "wait")
		p.ready(t)
		require.Len(t, p.processes(t), 2)
		p.interrupt(t, sig)
		require.Error(t, p.Wait())
		require.Equal(t, sig, p.ProcessState.Sys().(syscall.WaitStatus).Signal())
		p.nothingIsLeft(t)
	}
}

func TestAnInterruptedProgramLeavesNothingWhenItIsGone(t *testing.T) {
	t.Parallel()
	p := newPlayer(t, "run")
	p.ready(t)
	p.interrupt(t, syscall.SIGINT)
	require.NoError(t, p.Wait(), "%s", &p.errs)
	p.nothingIsLeft(t)
}

func TestAProgramThatDiesWithoutStoppingLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"kill", "panic", "exit"} {
		p := newPlayer(t, part)
		p.ready(t)
		if part == "kill" {
			p.interrupt(t, syscall.SIGKILL)
		}
		require.Error(t, p.Wait(), part)
		until(t, func() bool { return len(p.processes(t))+len(p.directories(t)) == 0 })
	}
}

func TestAProgramThatIsKilledWhileItStartsClustersLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newPlayer(t, "wait")
	until(t, func() bool { return len(p.processes(t)) > 0 })
	p.interrupt(t, syscall.SIGKILL)
	require.Error(t, p.Wait())
	until(t, func() bool { return len(p.processes(t))+len(p.directories(t)) == 0 })
}

func TestATestFailsWhenItsClustersDoNotStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var f fakeTB
	var wg sync.WaitGroup
	wg.Go(func() { testenv.Start(&f, 1, testenv.WithAPIServerArgs("--no-such-flag=1")) })
	wg.Wait()
	require.Contains(t, f.failed, "start clusters")
	require.Contains(t, f.failed, "unknown flag: --no-such-flag")
	for _, cleanup := range f.cleanups {
		cleanup()
	}
	require.True(t, nothingUnder(t, os.TempDir()))

	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	f = fakeTB{}
	wg.Go(func() { testenv.Start(&f, 1) })
	wg.Wait()
	require.Contains(t, f.failed, "no clusters: control plane binaries are not available")
}

func TestTheEndOfTheContextStopsTheClusters(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	env, err := testenv.Run(ctx, 2)
	require.NoError(t, err)
	cancel()
	until(t, func() bool { return nothingUnder(t, os.TempDir()) })
	require.NoError(t, env.Stop())
	require.NoError(t, env.Stop(), "again")
	for _, c := range env.Clusters {
		require.ErrorIs(t, c.Restart(t.Context()), testenv.ErrStopped)
		require.ErrorIs(t, c.Kill(), testenv.ErrStopped)
	}
}

func TestAStartThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := testenv.Run(ctx, 2)
		failed <- err
	}()
	until(t, func() bool { return !nothingUnder(t, os.TempDir()) })
	cancel()
	err := <-failed
	require.ErrorContains(t, err, "start clusters")
	require.True(t, nothingUnder(t, os.TempDir()))
}

func TestStopEndsWhatIsBeingDone(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	require.NoError(t, c.Kill())
	require.NoError(t, c.PauseEtcd()) // the API server cannot become ready
	starting := make(chan error, 1)
	go func() { starting <- c.StartAPIServer(t.Context()) }()
	until(t, func() bool { return c.Pause() == nil })
	require.NoError(t, c.Stop())
	require.ErrorIs(t, <-starting, testenv.ErrStopped)
	require.NoError(t, c.Stop(), "again")
}

func nothingUnder(t *testing.T, dir string) bool {
	t.Helper()
	processes, err := testenv.ProcessesUnder(dir)
	require.NoError(t, err)
	directories, err := filepath.Glob(filepath.Join(dir, testenv.DirPrefix+"*"))
	require.NoError(t, err)
	return len(processes)+len(directories) == 0
}
