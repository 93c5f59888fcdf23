// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// large returns an object whose metadata is in front, where typed objects have
// it, or behind the data, where custom resources have it.
func large(name string, behind bool) string {
	meta := fmt.Sprintf(`"metadata":{"annotations":{"name":"wrong","metadata":"{\"name\":\"wrong\"}"},"name":%q,`+
		`"namespace":"ns","uid":"u1","resourceVersion":"7"}`, name)
	data := `"data":{"metadata":{"name":"wrong"},"k":["` + strings.Repeat(`<\"`, 5000) +
		`","metadata",{"name":"wrong"}]}`
	if behind {
		return `{"apiVersion":"v1",` + data + `,"kind":"ConfigMap",` + meta + `}`
	}
	return `{"kind":"ConfigMap","apiVersion":"v1",` + meta + `,` + data + `}`
}

func TestObjectsThatAreTooLargeArePassedInBoundedMemory(t *testing.T) {
	want := wire.Identity{Kind: "ConfigMap", Namespace: "ns", Name: "big\n\"", UID: "u1", ResourceVersion: "7"}
	small := `{"kind":"ConfigMap","metadata":{"name":"small"}}`
	for _, behind := range []bool{false, true} {
		for _, size := range []int{1, 13, 4096, 1 << 20} {
			for _, limit := range []int{1 << 10, len(large(want.Name, behind)) - 1} {
				t.Run(fmt.Sprint(behind, size, limit), func(t *testing.T) {
					limits := wire.Limits{Object: limit, Pass: true}
					stream := `{"type":"ADDED","object":` + small + "}\n" + `{"type":"MODIFIED","object":` +
						large(want.Name, behind) + "}\n" +
						`{"type":"DELETED","object":` + small + "}"
					f := wire.NewFrameReader(&pieces{[]byte(stream), size}, limits)
					for i, kind := range []string{wire.Added, wire.Modified, wire.Deleted} {
						fr, err := f.Next()
						require.NoError(t, err)
						require.Equal(t, kind, fr.Type)
						it, err := f.Scan()
						if i != 1 {
							require.NoError(t, err)
							require.Equal(t, "small", it.Name)
							continue
						}
						_, tooLarge := errors.AsType[*wire.LimitError](err)
						require.True(t, tooLarge, "%v", err)
						require.Equal(t, want, wire.Identify(f.Object()))
					}
					_, err := f.Next()
					require.ErrorIs(t, err, io.EOF)

					page := `{"kind":"ConfigMapList","items":[` + small + "," + large(want.Name, behind) + "," + small +
						`],"metadata":{"resourceVersion":"9"}}`
					l := wire.NewListReader(&pieces{[]byte(page), size}, limits)
					for i := range 3 {
						_, err := l.Next()
						require.NoError(t, err)
						if _, err = l.Scan(); i != 1 {
							require.NoError(t, err)
							continue
						}
						_, tooLarge := errors.AsType[*wire.LimitError](err)
						require.True(t, tooLarge, "%v", err)
						require.Equal(t, want, wire.Identify(l.Object()))
					}
					_, err = l.Next()
					require.ErrorIs(t, err, io.EOF)
					require.Equal(t, "9", l.Header().ResourceVersion)
				})
			}
		}
	}
}

func TestCutOffWhilePassing(t *testing.T) {
	limits := wire.Limits{Object: 1 << 10, Pass: true}
	object := large("a", false)
	f := wire.NewFrameReader(strings.NewReader(`{"type":"ADDED","object":`+object), limits)
	_, err := f.Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	l := wire.NewListReader(strings.NewReader(`{"items":[`+object[:len(object)-2]), limits)
	_, err = l.Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestHazardObjectWithoutEnd: an object that is passed may be large, but not
// endless.
func TestHazardObjectWithoutEnd(t *testing.T) {
	const most = 4 * wire.DefaultObjectLimit
	limits := wire.Limits{Object: 1 << 10, Pass: true, Response: 1 << 40}
	for _, object := range []string{`{"a":"`, `{"`, `{"a":{"b":["`} {
		rest := &longString{}
		f := wire.NewFrameReader(io.MultiReader(strings.NewReader(`{"type":"ADDED","object":`+object), rest), limits)
		_, err := f.Next()
		require.Equal(t, &wire.LimitError{What: "bytes of one object", Limit: most}, err)
		require.Less(t, rest.n, most+1<<20)

		rest = &longString{}
		l := wire.NewListReader(io.MultiReader(strings.NewReader(`{"items":[`+object), rest), limits)
		_, err = l.Next()
		require.Equal(t, &wire.LimitError{What: "bytes of one object", Limit: most}, err)
		require.Less(t, rest.n, most+1<<20)
	}
}

// longString is a string without an end. It counts the bytes read, and ends
// when the test has failed.
type longString struct{ n int }

func (e *longString) Read(p []byte) (int, error) {
	if e.n > 100<<20 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = 'x'
	}
	e.n += len(p)
	return len(p), nil
}

func TestIdentityOfRefusedObjects(t *testing.T) {
	for object, want := range map[string]wire.Identity{
		`{"kind":"A","metadata":{"name":"a","namespace":7,"uid":null}}`:         {Kind: "A", Name: "a"},
		`{"metadata":{"labels":{"name":"x"},"name":"a","labels":[{"name":1}]}}`: {Name: "a"},
		`{"metadata":["name","a"],"name":"b","spec":{"metadata":{"name":"c"}}}`: {},
		`{"metadata":{"name":"` + strings.Repeat("x", 5000) + `"}}`:             {},
		`{}`: {},
	} {
		require.Equal(t, want, wire.Identify([]byte(object)), object)
	}
}
