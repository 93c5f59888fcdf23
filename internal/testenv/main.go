// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleetcache/fleetcache/internal/repeat"
	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

const (
	// deadlineReserve is the time reserved for a test or a test binary to end
	// gracefully.
	deadlineReserve = 20 * time.Second
	// goTestGrace is the minimum time for which the go command lets a test
	// binary run beyond its -timeout.
	goTestGrace = time.Minute
	// parallel is the minimum number of tests that run at once, if they allow
	// that.
	parallel = 6
)

// MainOption changes what [Main] does.
type MainOption func(*mainOptions)

type mainOptions struct {
	verifyLeaks bool
	goleak      []goleak.Option
}

// VerifyNoLeaks makes the package fail if goroutines are left after its tests,
// provided that all tests passed.
func VerifyNoLeaks(opts ...goleak.Option) MainOption {
	return func(o *mainOptions) { o.verifyLeaks, o.goleak = true, opts }
}

// Main must be called by the TestMain of a package whose tests start clusters.
// It ends the process.
//
// If the control plane binaries have to be built, Main does that before the
// first test, and before the package's test timeout, which starts with the
// tests. The go command's own limit remains: it kills a test binary a minute
// after the timeout, counted from the start of the binary. If a build takes
// that long, the package fails shortly before and reports why; the next run
// continues the build.
func Main(m *testing.M, opts ...MainOption) {
	var o mainOptions
	for _, option := range opts {
		option(&o)
	}
	start := time.Now()
	flag.Parse()
	if !given("test.parallel") {
		// These tests spend more time waiting for processes than computing.
		_ = flag.Set("test.parallel", strconv.Itoa(max(parallel, runtime.GOMAXPROCS(0))))
	}
	repeat.CollectRarely()
	// Otherwise controller-runtime complains after 30 s that no logger was set.
	log.SetLogger(logr.Discard())
	// Tests may run in a Pod, but the clusters that they start are on loopback,
	// and none of them is the Pod's.
	_ = os.Unsetenv("KUBERNETES_SERVICE_HOST")
	if list := flag.Lookup("test.list"); list == nil || list.Value.String() == "" {
		if err := prepare(start, timeout()); err != nil {
			fmt.Fprintln(os.Stderr, "testenv:", err)
			os.Exit(1)
		}
	}

	if o.verifyLeaks {
		goleak.VerifyTestMain(m, o.goleak...)
	}
	os.Exit(m.Run())
}

// given reports whether the caller has set a flag.
func given(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// timeout returns the test timeout of this binary, or 0 if there is none.
func timeout() time.Duration {
	limit, err := time.ParseDuration(flag.Lookup("test.timeout").Value.String())
	if err != nil {
		return 0
	}
	return limit
}

// prepare provides the binaries within the time that go test allows.
func prepare(start time.Time, limit time.Duration) error {
	// When interrupted, a build removes its incomplete output.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, start.Add(limit+goTestGrace-deadlineReserve),
			errors.New("go test would kill this test binary now, for all it knows of the build; "+
				"run the tests again, or first: go run ./internal/testenv/install"))
		defer cancel()
	}

	if _, err := assets.Find(ctx, progress()); err != nil {
		return err
	}
	if limit == 0 {
		return nil
	}
	// The time left for the tests until go test would kill them without a
	// report.
	left := time.Until(start.Add(limit + goTestGrace - deadlineReserve))
	if left >= limit {
		return nil
	}
	return flag.Set("test.timeout", max(left, time.Second).String()) // 0 or less would mean no timeout
}
