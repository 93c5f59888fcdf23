// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// FuzzFrames compares FrameReader and Scan with encoding/json's streaming
// decoder, for streams that arrive in pieces of any size.
func FuzzFrames(f *testing.F) {
	for _, s := range frameSeeds {
		f.Add([]byte(s), 7)
		f.Add([]byte(s), 4096)
	}
	f.Fuzz(func(t *testing.T, stream []byte, n int) {
		compareFrames(t, stream,
			n, func(_ *wire.FrameReader, fr wire.Frame) (wire.Item, error) { return wire.Scan(fr.Object) })
		compareFrames(t, stream, n, func(r *wire.FrameReader, _ wire.Frame) (wire.Item, error) { return r.Scan() })
	})
}

func compareFrames(t *testing.T, stream []byte, n int, scan func(*wire.FrameReader, wire.Frame) (wire.Item, error)) {
	t.Helper()
	r := wire.NewFrameReader(&pieces{stream, n}, wire.Limits{})
	defer r.Close()
	d := json.NewDecoder(bytes.NewReader(stream))
	for {
		fr, err := r.Next()
		var want map[string]any
		wantErr := d.Decode(&want)
		var it wire.Item
		if err == nil {
			it, err = scan(r, fr)
		}
		if err != nil {
			requireFrameRefusal(t, err, want, wantErr)
			return
		}
		require.NoError(t, wantErr)
		require.Equal(t, want["type"], fr.Type)
		got, err := decode(fr.Object)
		require.NoError(t, err)
		require.Equal(t, normalize(want["object"]), normalize(got))
		requireSameMeaning(t, got, &it)
	}
}

// normalize makes a value comparable that was decoded without UseNumber.
func normalize(v any) string {
	b, _ := json.Marshal(v)
	var plain any
	_ = json.Unmarshal(b, &plain)
	b, _ = json.Marshal(plain)
	return string(b)
}

func requireFrameRefusal(t *testing.T, err error, want map[string]any, wantErr error) {
	t.Helper()
	if errors.Is(err, io.EOF) {
		require.ErrorIs(t, wantErr, io.EOF)
		return
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		requireTyped(t, err)
	}
	if wantErr == nil && want != nil && !named(err) {
		t.Fatalf("refused %v without a field: %v", want, err)
	}
}

// FuzzFramePieces checks that the pieces in which a stream arrives do not
// matter.
func FuzzFramePieces(f *testing.F) {
	for _, s := range frameSeeds {
		f.Add([]byte(s), 1, 130)
	}
	f.Fuzz(func(t *testing.T, stream []byte, a, b int) {
		framesA, errA := allFrames(stream, a)
		framesB, errB := allFrames(stream, b)
		require.Equal(t, framesA, framesB)
		require.Equal(t, errA, errB)
	})
}

// allFrames reads a stream to its end, scanning ahead.
func allFrames(stream []byte, n int) ([]wire.Frame, error) {
	r := wire.NewFrameReader(&pieces{stream, n}, wire.Limits{Object: 4096})
	defer r.Close()
	var all []wire.Frame
	for {
		fr, err := r.Next()
		if err != nil {
			return all, err
		}
		if _, err := r.Scan(); err != nil {
			return all, err
		}
		fr.Object = slices.Clone(fr.Object)
		all = append(all, fr)
	}
}

// frameSeeds are streams as servers and proxies write them, and malformed ones.
var frameSeeds = []string{
	``, "\n", `{"type":"ADDED","object":{"metadata":{"name":"a"}}}` + "\n" + `{"type":"MODIFIED","object":{}}` + "\n",
	`{"type":"ADDED","object":{}}{"type":"DELETED","object":{}}` + "\r\n" + `{"type":"BOOKMARK","object":{}}`,
	"{\n  \"type\": \"ADDED\",\n  \"object\": {\n    \"a\": {}\n  }\n}\n{\"type\":\"ERROR\"," +
		"\"object\":{\"kind\":\"Status\"}}\n",
	"{\"type\":\"ADDED\",\"object\":{\"a\":{}\n,\"b\":\"}\"}}\n",
	`{"type":"ADDED","object":{},"extra":1}`, `{"object":{},"type":"ADDED"}`,
	`{"type":"ADDED","type":"DELETED","object":{},"object":{"a":1}}`,
	`{"type":"ADDED","object":{"a":"\"}{"}}`, `{"type":"ADDED","object":{"a":"\\"}}`,
	`{"ty\u0070e":"ADD\u0045D","object":{}}`,
	`{"type":"ADDED","object":null}`, `{"type":"ADDED"}`, `{"type":"NEWS","object":{}}`, `{"type":1,"object":{}}`, `{}`,
	`[]`, `x`, `{"type":"ADDED","object":{`,
	`{"type":"ADDED","object":{"a":[}]}}`, `{"type":"ADDED","object":{]}`, `{"type":"ADDED","object":[]}`,
	`<html></html>`, `{"type":"ADDED","object":{}}}`,
	`{"type":"ADDED","object":{"a":1e999}}`, `{"type":"ADDED","object":{},"extra":{}}`,
	`{"type":"ADDED","object":{}}{"type":"ADDED","object":{},"extra":1}{"type":"ADDED","object":{} }{"type":"ADDED",` +
		`"object":{}`,
}
