// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/examples/internal/storytest"
)

func TestMain(m *testing.M) {
	storytest.Program(main)
	goleak.VerifyTestMain(m)
}

// The second process reaches the servers in memory, too.
func TestTheStoryIsToldInMemoryWithoutServers(t *testing.T) {
	t.Parallel()
	storytest.TellInMemory(t).Order(
		"what they do not show: etcd",
		"ok: since the start, WATCH requests: 1 of ConfigMaps", "| configuration: +keys, 2 unchanged",
		"ok: what both selections have is not delivered again", "| configuration refused: line 4",
		"ok: only the watches of two entries are open", "ok: the process ended well (status 0",
		"ok: no watch is left", "17 expectations, all met", "the clusters are gone",
	)
}

// follow runs a processor on the clusters east and west, and returns a function
// that sends it a document and returns what it then prints, without times and
// without entries that are Pending.
func follow(t *testing.T, fleet *clustercachetest.Fleet) (send func(text string) []string) {
	t.Helper()
	var out bytes.Buffer
	p, err := newProcessor(fleet.Resolver(), story.NewPrinter(&out), logr.Discard())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	documents := make(chan document)
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx, documents) }()
	t.Cleanup(func() { // the documents have not ended, as standard input has not
		cancel()
		require.NoError(t, <-ended)
		require.True(t, strings.HasSuffix(out.String(), "stopping\n"), out.String())
	})

	return func(text string) (lines []string) {
		t.Helper()
		synctest.Wait()
		out.Reset()
		documents <- document{text: []byte(text)}
		time.Sleep(time.Second)
		synctest.Wait()
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), "s  ")
			if !strings.HasSuffix(line, " is Pending") { // it is not told once it is over
				lines = append(lines, line)
			}
		}
		return lines
	}
}

func TestOnlyTheDifferenceStartsAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("east", configMap("red", "paint"), secret("key"))
		west := fleet.Add("west", configMap("speed", "road"))
		requests := func() int {
			all := clustercachetest.Verb("list", "watch")
			return len(east.Requests(all)) + len(west.Requests(all))
		}
		send := follow(t, fleet)

		require.ElementsMatch(t, []string{
			"configuration: +paint, +road, 0 unchanged",
			"paint: ConfigMap demo/red in east Added", "paint is Synced",
			"road: ConfigMap demo/speed in west Added", "road is Synced",
		}, send(paint+road))
		before := requests()
		require.Equal(t, []string{"configuration: 2 unchanged"}, send(road+paint))
		require.Contains(t, send(colors+road), "configuration: +colors, -paint, 1 unchanged")
		require.Equal(t, before, requests(), "a new name costs no request")

		require.Contains(t, send(colors), "road: ConfigMap demo/speed in west Deleted (it left the set)")
		require.Contains(t, send(colors+keys), "keys: Secret demo/key in east Added")
		require.Equal(t, []string{"configuration refused: empty; a set without entries is {}"}, send(""))
		require.Equal(t, []string{"configuration: 2 unchanged"}, send(colors+keys), "the mistake changed nothing")
	})
}

func TestDocumentsOfAStream(t *testing.T) {
	text := "---\na\nb\n---\n\n --- \nc\n---\nd"
	read := func(r io.Reader) (texts []string, err error) {
		for d := range fromStream(t.Context(), r) {
			if d.err != nil {
				return texts, d.err
			}
			texts = append(texts, string(d.text))
		}
		return texts, nil
	}
	texts, err := read(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, []string{"a\nb\n", "c\n", "d"}, texts)

	broken := errors.New("broken")
	texts, err = read(io.MultiReader(strings.NewReader(text), failing{broken}))
	require.ErrorIs(t, err, broken)
	require.Equal(t, []string{"a\nb\n", "c\n"}, texts, "half a document may be a valid one")
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestDocumentsOfAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "entries")
		ctx, cancel := context.WithCancel(t.Context())
		documents := fromFile(ctx, path)
		require.ErrorIs(t, (<-documents).err, os.ErrNotExist)
		for _, text := range []string{"a", "b", ""} {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			d := <-documents
			require.NoError(t, d.err)
			require.Equal(t, text, string(d.text))
		}

		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case d := <-documents:
			require.Fail(t, "nothing has changed", d)
		default:
		}
		cancel()
		_, open := <-documents
		require.False(t, open)
	})
}

func TestCommandLine(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"help":             {[]string{"-h"}, 0, "-entries"},
		"kubeconfig alone": {[]string{"-kubeconfig", "f"}, story.ExitUsage, "need each other"},
		"entries alone":    {[]string{"-entries", "f"}, story.ExitUsage, "need each other"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, tc.status, program().Execute(t.Context(), tc.args, &stdout, &stderr))
			require.Contains(t, stderr.String(), tc.says)
		})
	}
}
