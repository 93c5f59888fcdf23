// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package calls_test

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/informerpool/internal/calls"
	"github.com/fleetcache/fleetcache/internal/callback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type name string

func (n name) String() string { return string(n) }

// recorder returns a caller, the names of what panicked, and its log.
func recorder() (c *calls.Caller, panicked *[]string, log *strings.Builder) {
	panicked, log = new([]string), new(strings.Builder)
	return &calls.Caller{
		Logger:  funcr.New(func(prefix, args string) { log.WriteString(prefix + args + "\n") }, funcr.Options{}),
		OnPanic: func(callback string) { *panicked = append(*panicked, callback) },
	}, panicked, log
}

// TestPanicsAreErrorsOfTheCall: they name the informer in the log, are reported
// once, and do not end the process.
func TestPanicsAreErrorsOfTheCall(t *testing.T) {
	for kind, call := range map[string]func(*calls.Caller, func() error) error{
		"here": func(c *calls.Caller, f func() error) error {
			return c.Here("Source", name("pods of east"), f, "step", "list")
		},
		"apart": func(c *calls.Caller, f func() error) error {
			return c.Apart("Source", name("pods of east"), f, "step", "list")
		},
	} {
		t.Run(kind, func(t *testing.T) {
			c, panicked, log := recorder()
			err := call(c, func() error { panic("broken") })
			var caught *callback.PanicError
			require.ErrorAs(t, err, &caught)
			require.Equal(t, []string{"Source"}, *panicked)
			require.Contains(t, log.String(), "pods of east")
			require.Contains(t, log.String(), "list")

			failed := errors.New("failed")
			require.Equal(t, failed, call(c, func() error { return failed }))
			require.NoError(t, call(c, func() error { return nil }))
			require.Len(t, *panicked, 1)
		})
	}
}

// TestHazardFunctionEndsItsGoroutine: the caller of Apart continues, and that
// of Here ends after the failure was reported.
func TestHazardFunctionEndsItsGoroutine(t *testing.T) {
	c, panicked, _ := recorder()
	require.ErrorIs(t, c.Apart("OnListed", name("pods"), func() error {
		runtime.Goexit()
		return nil
	}), callback.ErrGoexit)
	require.Equal(t, []string{"OnListed"}, *panicked)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Here("Handler", name("pods"), func() error {
			runtime.Goexit()
			return nil
		})
		t.Error("Here returned")
	}()
	<-ended
	require.Equal(t, []string{"OnListed", "Handler"}, *panicked)
}

// TestHazardOnPanicPanics: what reports panics may be as broken as what panics.
func TestHazardOnPanicPanics(t *testing.T) {
	c := &calls.Caller{Logger: logr.Discard(), OnPanic: func(string) { panic("as well") }}
	require.Error(t, c.Here("Handler", name("pods"), func() error { panic("broken") }))
	c.OnPanic = nil
	require.Error(t, c.Here("Handler", name("pods"), func() error { panic("broken") }))
}

// broken is a body whose methods panic.
type broken struct{ io.ReadCloser }

// TestBodyOfASourceMayPanic: its panics are errors of the read or the close.
func TestBodyOfASourceMayPanic(t *testing.T) {
	c, panicked, _ := recorder()
	body := c.Body(broken{}, name("pods"))
	_, err := body.Read(make([]byte, 1))
	require.Error(t, err)
	require.Error(t, body.Close())
	require.Equal(t, []string{"Source", "Source"}, *panicked)

	data, err := io.ReadAll(c.Body(io.NopCloser(strings.NewReader("frames")), name("pods")))
	require.NoError(t, err)
	require.Equal(t, "frames", string(data))
}
