// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// blanks is white space without an end, which a compressed body may contain. It
// counts the bytes read.
type blanks struct{ n int64 }

func (b *blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = " \n\t\r"[i%4]
	}
	b.n += int64(len(p))
	return len(p), nil
}

// TestHazardWhiteSpaceWithoutEnd: little of the white space is read, wherever
// it appears.
func TestHazardWhiteSpaceWithoutEnd(t *testing.T) {
	large := strings.Repeat("x", 2000)
	limits := wire.Limits{Object: 1 << 10, Pass: true, Response: 64 << 20}
	const small = `{"metadata":{"name":"a"}}`
	for name, before := range map[string]string{
		"before the list":           ``,
		"in the list":               `{`,
		"behind a key":              `{"kind"`,
		"behind a colon":            `{"kind":`,
		"behind a member":           `{"kind":"A"`,
		"before the first item":     `{"items":[`,
		"behind an item":            `{"items":[` + small,
		"before an item":            `{"items":[` + small + `,`,
		"behind the items":          `{"items":[]`,
		"behind the list":           `{"items":[]}`,
		"in an item that is passed": `{"items":[{"a":"` + large + `"`,
	} {
		for _, scan := range []bool{false, true} {
			space := &blanks{}
			l := wire.NewListReader(io.MultiReader(strings.NewReader(before), space), limits)
			requireSpace(t, name, func() error {
				_, err := l.Next()
				if err == nil && scan {
					_, err = l.Scan()
				}
				return err
			})
			require.Less(t, space.n, int64(2<<20), name)
		}
	}
	for name, before := range map[string]string{
		"before a frame":            ``,
		"behind a frame":            `{"type":"ADDED","object":` + small + "}",
		"in a frame that is passed": `{"type":"ADDED","object":{"a":"` + large + `"`,
	} {
		space := &blanks{}
		f := wire.NewFrameReader(io.MultiReader(strings.NewReader(before), space), limits)
		requireSpace(t, name, func() error { _, err := f.Next(); return err })
		require.Less(t, space.n, int64(2<<20), name)

		space = &blanks{}
		f = wire.NewFrameReader(io.MultiReader(strings.NewReader(before), space), limits)
		requireSpace(t, name, func() error {
			if err := f.Wait(); err != nil {
				return err
			}
			_, err := f.Next()
			return err
		})
		require.Less(t, space.n, int64(2<<20), name)
	}
}

// requireSpace asserts that the limit of white space ends the reading.
func requireSpace(t *testing.T, name string, next func() error) {
	t.Helper()
	var err error
	for err == nil {
		err = next()
	}
	limit, ok := errors.AsType[*wire.LimitError](err)
	require.True(t, ok, "%s: %v", name, err)
	require.Equal(t, &wire.LimitError{What: "bytes of white space", Limit: wire.MaxSpace}, limit, name)
}

// TestWhiteSpaceOfAReasonableMeasureIsPassed: some white space is accepted
// between any two tokens.
func TestWhiteSpaceOfAReasonableMeasureIsPassed(t *testing.T) {
	gap := strings.Repeat("\n\t  ", wire.MaxSpace/4-1)
	parts := []string{"", "{", `"kind"`, ":", `"L"`, ",", `"items"`, ":", "[", `{"metadata":{"name":"a"}}`, ",",
		`{"metadata":{"name":"b"}}`, "]", "}", ""}
	l := wire.NewListReader(strings.NewReader(strings.Join(parts, gap)), wire.Limits{})
	for _, name := range []string{"a", "b"} {
		_, err := l.Next()
		require.NoError(t, err)
		it, err := l.Scan()
		require.NoError(t, err)
		require.Equal(t, name, it.Name)
	}
	_, err := l.Next()
	require.ErrorIs(t, err, io.EOF)
}
