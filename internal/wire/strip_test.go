// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/wire"
)

func TestStripDropsWhatItNames(t *testing.T) {
	st, err := wire.NewStrip(
		[]string{"status"},
		[]string{"metadata", "annotations", "last-applied"},
		[]string{"spec", "containers", wire.Any, "env"},
	)
	require.NoError(t, err)
	it, err := st.Scan([]byte(`{"metadata":{"name":"n","annotations":{"l\u0061st-applied":"x","a":"b"}},"spec":{"containers":[{"env":[]},{"name":"c","env":[1],"x":2},{"env":1,"y":3}]},"status":{"a":1}}`))
	require.NoError(t, err)
	require.Equal(t, `{"metadata":{"name":"n","annotations":{"a":"b"}},"spec":{"containers":[{},{"name":"c","x":2},{"y":3}]}}`, string(it.Append(nil)))
}

func TestStripCannotTakeIdentity(t *testing.T) {
	for _, path := range [][]string{
		{}, {"metadata"}, {"metadata", "name"}, {"metadata", "uid"}, {"metadata", "labels", "a"}, {"metadata", "ownerReferences"},
		{"metadata", wire.Any}, {wire.Any}, {"kind"}, {"apiVersion"},
	} {
		_, err := wire.NewStrip(path)
		require.Error(t, err, "%q", path)
	}
	var none *wire.Strip
	_, err := none.Scan([]byte(`{"a":1}`))
	require.NoError(t, err)
}

// TestStripEqualsDeletingFromTheMap strips random paths from random objects.
func TestStripEqualsDeletingFromTheMap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		object := map[string]any{"spec": randomValue(r, 4), "metadata": map[string]any{"annotations": map[string]any{"a": "1", "b": "2"}, "x": randomValue(r, 2)}}
		paths := [][]string{append([]string{"spec"}, randomPath(r)...), append([]string{"spec"}, randomPath(r)...), {"metadata", "x", "a"}, {"metadata", "annotations", "b"}}
		st, err := wire.NewStrip(paths...)
		require.NoError(t, err)
		raw, err := json.MarshalIndent(object, "", [...]string{"", " "}[r.IntN(2)])
		require.NoError(t, err)
		it, err := st.Scan(raw)
		require.NoError(t, err)
		want, err := decode(raw)
		require.NoError(t, err)
		strip(want, paths)
		got, err := decode(it.Append(nil))
		require.NoError(t, err, "%s of %s is %s", paths, raw, it.Append(nil))
		require.Equal(t, want, got, "%s of %s", paths, raw)
	}
}

func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(6); {
	case depth == 0 || n == 0:
		return [...]any{nil, "s", 1.5, true, map[string]any{}, []any{}}[r.IntN(6)]
	case n == 1:
		a := []any{}
		for range r.IntN(4) {
			a = append(a, randomValue(r, depth-1))
		}
		return a
	default:
		m := map[string]any{}
		for range r.IntN(5) {
			m[string(rune('a'+r.IntN(4)))] = randomValue(r, depth-1)
		}
		return m
	}
}

func randomPath(r *rand.Rand) []string {
	path := []string{}
	for range 1 + r.IntN(3) {
		path = append(path, [...]string{"a", "b", "c", wire.Any}[r.IntN(4)])
	}
	return path
}

// strip deletes paths from a value: where a named path and Any meet, the name
// wins.
func strip(v any, paths [][]string) {
	switch v := v.(type) {
	case []any:
		var below [][]string
		for _, p := range paths {
			if len(p) > 1 && p[0] == wire.Any {
				below = append(below, p[1:])
			}
		}
		for _, e := range v {
			strip(e, below)
		}
	case map[string]any:
		for key := range v {
			if drop, below := pathsBelow(paths, key); drop {
				delete(v, key)
			} else {
				strip(v[key], below)
			}
		}
	}
}

func pathsBelow(paths [][]string, key string) (drop bool, below [][]string) {
	for _, name := range []string{key, wire.Any} {
		found := false
		for _, p := range paths {
			if len(p) == 0 || p[0] != name {
				continue
			}
			found = true
			drop = drop || len(p) == 1
			below = append(below, p[1:])
		}
		if found {
			return drop, below
		}
	}
	return false, nil
}
