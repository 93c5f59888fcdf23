// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	lockFile   = "lock"
	statusFile = "status"
	tempPrefix = "build-"

	// lockPoll is how often a waiting process tries for the lock.
	lockPoll = 200 * time.Millisecond
	// goPatience is how long an interrupted go command may take to clean up.
	goPatience = 30 * time.Second
)

// builder builds the target of a recipe.
type builder struct {
	recipe

	log   func(string)
	every time.Duration // between lines of progress
}

// ensure returns when the target exists, built by this process or another.
func (b builder) ensure(ctx context.Context) error {
	if b.done() {
		return nil
	}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return err
	}
	lock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // releases the lock, as would the death of this process
	if b.done() {
		return nil
	}
	return b.build(ctx)
}

func (b builder) done() bool {
	_, err := os.Stat(b.target)
	return err == nil
}

// lock acquires the lock that all builders share. While another process holds
// it, lock reports the progress of that process, and also returns once the
// target exists.
func (b builder) lock(ctx context.Context) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(b.cache, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	try := time.NewTicker(lockPoll)
	defer try.Stop()
	var reported time.Time
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || b.done() {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
		}
		if time.Since(reported) >= b.every {
			reported = time.Now()
			status, _ := os.ReadFile(filepath.Join(b.cache, statusFile))
			b.log("waiting for another process: " + string(status))
		}
		select {
		case <-try.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another process to build them: %w", context.Cause(ctx)),
				file.Close())
		}
	}
}

// build compiles into a new directory and moves that into place when it is
// complete. The caller holds the lock, so everything that other builds have
// left is garbage.
func (b builder) build(ctx context.Context) error {
	stale, err := filepath.Glob(filepath.Join(b.cache, tempPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range stale {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	temp, err := os.MkdirTemp(b.cache, tempPrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	out, work := filepath.Join(temp, "out"), filepath.Join(temp, "work")
	for _, dir := range []string{out, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := b.compile(ctx, out, work); err != nil {
		return fmt.Errorf("build %s: %w", b.content, err)
	}

	for _, p := range b.programs {
		if err := os.Rename(filepath.Join(out, p.built), filepath.Join(out, p.name)); err != nil {
			return err
		}
		if err := executable(filepath.Join(out, p.name)); err != nil {
			return err
		}
	}

	return os.Rename(out, b.target)
}

// compile runs the go command and reports its progress.
func (b builder) compile(ctx context.Context, out, work string) error {
	var output output
	args := []string{"build", "-v", "-buildvcs=false", "-ldflags", b.ldflags(), "-o", out + string(filepath.Separator)}
	for _, p := range b.programs {
		args = append(args, p.pkg)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly", "CGO_ENABLED=0", "GOTMPDIR="+work,
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = dieWithParent()
	// When interrupted, the go command ends its compilers and removes its
	// files.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = goPatience

	ended := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		runtime.LockOSThread() // the child dies with the thread that started it
		defer runtime.UnlockOSThread()
		ended <- cmd.Run()
	})

	start := time.Now()
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	b.report("building %s from source (%s), once for all: kept in %s", b.content, b.effort, b.target)

	for {
		select {
		case <-tick.C:
			b.report("%s building %s: %s so far, %s", output.bar(b.packages), b.content,
				time.Since(start).Round(time.Second), output.progress())
		case err := <-ended:
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("given up after %s: %w", time.Since(start).Round(time.Second), context.Cause(ctx))
			}
			if err != nil {
				return fmt.Errorf("%w\n%s", err, output.tail())
			}
			b.report("built %s in %s", b.content, time.Since(start).Round(time.Second))
			return nil
		}
	}
}

// report logs a line and stores it where waiting processes look for it.
func (b builder) report(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	_ = os.WriteFile(filepath.Join(b.cache, statusFile), []byte(line), 0o644)
	b.log(line)
}

// output parses the go command's output: a line for each package compiled and
// each module downloaded, and errors.
type output struct {
	// mu protects the fields below.
	mu         sync.Mutex
	partial    string
	compiled   int
	downloaded int
	errors     []string // the last lines that are something else
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	lines := strings.Split(o.partial+string(p), "\n")
	o.partial = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			o.downloaded++
		case !strings.ContainsAny(line, " \t:"):
			o.compiled++
		default:
			o.errors = append(o.errors[max(0, len(o.errors)-29):], line)
		}
	}

	return len(p), nil
}

// bar draws how far the build is, if total packages have to be compiled. The
// last percent is left for linking.
func (o *output) bar(total int) string {
	o.mu.Lock()
	defer o.mu.Unlock()

	const width = 20
	percent := min(100*o.compiled/total, 99)
	full := width * percent / 100
	return fmt.Sprintf("[%s%s] %2d %%", strings.Repeat("#", full), strings.Repeat(".", width-full), percent)
}

func (o *output) progress() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprintf("%d modules downloaded, %d packages compiled", o.downloaded, o.compiled)
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(append(o.errors, o.partial), "\n")
}
