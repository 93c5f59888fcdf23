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

	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

const (
	// deadlineReserve is what is kept of a test's or a test binary's time to
	// end in order.
	deadlineReserve = 20 * time.Second
	// goTestGrace is how much longer than its -timeout the go command lets a
	// test binary live, at least.
	goTestGrace = time.Minute
	// parallel is how many tests run at once at least, if they say that they
	// can.
	parallel = 6
)

// MainOption changes what [Main] does.
type MainOption func(*mainOptions)

type mainOptions struct {
	verifyLeaks bool
	goleak      []goleak.Option
}

// VerifyNoLeaks fails the package if goroutines are left after its tests, which
// all must have passed for that.
func VerifyNoLeaks(opts ...goleak.Option) MainOption {
	return func(o *mainOptions) { o.verifyLeaks, o.goleak = true, opts }
}

// Main is what the TestMain of a package has to call whose tests start
// clusters. It ends the process.
//
// It has the control plane binaries built, if need be, before the first test
// begins, and before the package's test time-out begins to run: that starts
// with the tests. The go command's own limit, which kills a test binary a
// minute after the time-out counted from its start, remains. If a build takes
// so long, the package fails shortly before, and says why; the next run goes on
// from there.
func Main(m *testing.M, opts ...MainOption) {
	var o mainOptions
	for _, option := range opts {
		option(&o)
	}
	start := time.Now()
	flag.Parse()
	if !given("test.parallel") {
		// Such tests wait for processes more than they compute.
		_ = flag.Set("test.parallel", strconv.Itoa(max(parallel, runtime.GOMAXPROCS(0))))
	}
	// Else controller-runtime complains, after 30 s, that nobody has done it.
	log.SetLogger(logr.Discard())
	// Tests run in a Pod, too; the clusters that they start are on loopback all
	// the same, and none of them is the Pod's.
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

// given reports whether a flag was set by the caller.
func given(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// timeout returns the test time-out of this binary; 0 if it has none.
func timeout() time.Duration {
	limit, err := time.ParseDuration(flag.Lookup("test.timeout").Value.String())
	if err != nil {
		return 0
	}
	return limit
}

// prepare gets the binaries, within what go test leaves of the time.
func prepare(start time.Time, limit time.Duration) error {
	// An interrupted build removes what it has made so far.
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
	// What is left for the tests until they would be killed without a word.
	left := time.Until(start.Add(limit + goTestGrace - deadlineReserve))
	if left >= limit {
		return nil
	}
	return flag.Set("test.timeout", max(left, time.Second).String()) // 0 or less would mean none
}
