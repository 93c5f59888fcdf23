// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package callback_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/internal/callback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errOwn = errors.New("own")

func until(name string, f func() error) error {
	_, err := callback.Until(context.Background(), nil, name,
		func() (struct{}, error) { return struct{}{}, f() }, func(struct{}, error) {})
	return err
}

// TestHazardCallbackEndsItsGoroutine: a caller that waits for the callback must
// continue.
func TestHazardCallbackEndsItsGoroutine(t *testing.T) {
	for name, call := range map[string]func(string, func() error) error{
		"Apart":       callback.Apart,
		"ApartSecret": callback.ApartSecret,
		"Until":       until,
	} {
		t.Run(name, func(t *testing.T) {
			err := call("Ready", func() error { runtime.Goexit(); return nil })
			require.ErrorIs(t, err, callback.ErrGoexit)
			require.EqualError(t, err, "Ready called runtime.Goexit")
			p, ok := errors.AsType[*callback.PanicError](err)
			require.True(t, ok)
			require.Equal(t, "Ready", p.Callback)

			require.NoError(t, call("Ready", func() error { return nil }))
			require.ErrorIs(t, call("Ready", func() error { return errOwn }), errOwn)
		})
	}
}

// TestPanicsAreErrors: if the function receives secrets, little of its panic is
// shown.
func TestPanicsAreErrors(t *testing.T) {
	for name, call := range map[string]func(string, func() error) error{
		"Apart": callback.Apart, "Until": until,
	} {
		t.Run(name, func(t *testing.T) {
			err := call("Ready", func() error { panic(errOwn) })
			require.ErrorIs(t, err, errOwn)
			require.EqualError(t, err, "Ready panicked: own")
			err = call("Ready", func() error { panic(strings.Repeat("x", 1000)) })
			require.Less(t, len(err.Error()), 600)
		})
	}
	err := callback.ApartSecret("Ready", func() error { panic("s3cret") })
	require.EqualError(t, err, "Ready panicked: a value of type string")
	err = callback.ApartSecret("Ready", func() error { _ = []int{}[len(errOwn.Error())]; return nil })
	require.ErrorContains(t, err, "index out of range")
}
