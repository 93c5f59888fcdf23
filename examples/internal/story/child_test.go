// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
)

// asChild makes this test binary run as a child: it repeats its input until it
// receives SIGTERM.
const asChild = "FLEETCACHE_STORY_AS_CHILD"

func TestChildBecomesPartOfTheStory(t *testing.T) {
	t.Setenv(asChild, "1")
	var out bytes.Buffer
	c, err := StartChild(t.Context(), NewPrinter(&out))
	require.NoError(t, err)
	defer c.Kill()
	s := Story{Printer: NewPrinter(&bytes.Buffer{}), Changed: c.News}
	lines := func(n int, parts ...string) {
		t.Helper()
		_, err := s.Await(t.Context(), Patience, "lines", func() error { return c.Missing(n, parts...) })
		require.NoError(t, err)
	}

	require.NoError(t, c.Send("   1.5s  one\ntwo\n"))
	lines(0, "one", "two")
	require.Equal(t, []string{"one", "two"}, c.Since(0), "its time is not shown")
	require.NoError(t, c.Send("three\n"))
	require.EqualError(t, c.Missing(2, "one"), `no line with "one"`)
	lines(2, "three")

	begin := time.Now()
	status, _, err := c.Terminate()
	require.NoError(t, err)
	require.Less(t, time.Since(begin), Patience)
	require.Zero(t, status)
	require.Contains(t, out.String(), "s      | three\n")
}

// repeat is the child of the test.
func repeat() {
	Program{
		Name: "repeat",
		Run: func(ctx context.Context, out *Printer, _ logr.Logger) error {
			go func() { // ends with the process
				for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
					out.Print(lines.Text() + "\n")
				}
			}()
			<-ctx.Done()
			return nil
		},
	}.Main()
}
