// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAwaitChecksAgainAfterEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed, checks := make(chan struct{}), 0
		s := Story{Printer: NewPrinter(&bytes.Buffer{}), Changed: func() <-chan struct{} { return changed }}
		time.AfterFunc(time.Millisecond, func() { close(changed) })
		took, err := s.Await(t.Context(), time.Second, "a change", func() error {
			if checks++; checks < 2 {
				return errors.New("not yet")
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, time.Millisecond, took)
	})
}

func TestAwaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Story{Printer: NewPrinter(&bytes.Buffer{})}
		never := func() error { return errors.New("not yet") }
		begin := time.Now()
		_, err := s.Await(t.Context(), 3*time.Second, "a change", never)
		require.Equal(t, &UnmetError{Expected: "a change within 3s", Got: "not yet"}, err)
		require.Equal(t, 3*time.Second, time.Since(begin))

		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the operator ended")
		cancel(cause)
		_, err = s.Await(ctx, time.Minute, "a change", never)
		require.ErrorIs(t, err, cause)
	})
}

func TestExpectationsMetAreCounted(t *testing.T) {
	var text bytes.Buffer
	s := Story{Printer: NewPrinter(&text)}
	require.NoError(t, s.Expect(true, "a door", "a red one"))
	require.Equal(t, &UnmetError{Expected: "a window", Got: "a wall"}, s.Expect(false, "a window", "a wall"))
	require.Equal(t, 1, s.Met)
	require.Contains(t, text.String(), "ok: a door (a red one)")
	require.NotContains(t, text.String(), "window")
}

func TestUnmetExpectationSaysWhatCameInstead(t *testing.T) {
	s := &Story{Printer: NewPrinter(&bytes.Buffer{})}
	_, err := s.Await(t.Context(), time.Millisecond, "a miracle", func() error { return errors.New("nothing unusual") })
	require.EqualError(t, err, "expected a miracle within 1ms; got nothing unusual")
	err = s.Expect(false, "an answer", "silence")
	require.EqualError(t, err, "expected an answer; got silence")
	require.Zero(t, s.Met)
}
