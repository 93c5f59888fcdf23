// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// decode decodes an object as every other client does: into a map, with numbers
// as they were written.
func decode(b []byte) (map[string]any, error) {
	// Only plain decoding refuses numbers that are out of range.
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	m = nil
	err := d.Decode(&m)
	return m, err
}

// strip appends the object of an item without apiVersion, kind and
// managedFields.
func strip(dst []byte, it *wire.Item) []byte {
	dst = append(dst, '{')
	if it.HasMetadata() {
		dst = append(it.AppendMetadata(append(dst, `"metadata":{`...), wire.FieldManagedFields), "},"...)
	}
	from := len(dst)
	if dst = it.AppendRest(dst); len(dst) == from && it.HasMetadata() {
		dst = dst[:from-1]
	}
	return append(dst, '}')
}

// requireTyped asserts that an error is one of this package and quotes nothing
// long.
func requireTyped(t *testing.T, err error) {
	t.Helper()
	var field *wire.FieldError
	var limit *wire.LimitError
	var syntax *wire.SyntaxError
	require.True(t, errors.As(err, &field) || errors.As(err, &limit) || errors.As(err, &syntax), "%T: %v", err, err)
	require.Less(t, len(err.Error()), 400)
}

// named reports whether an error names the field or limit that caused it.
func named(err error) bool {
	if _, ok := errors.AsType[*wire.FieldError](err); ok {
		return true
	}
	_, ok := errors.AsType[*wire.LimitError](err)
	return ok
}

// pieces returns its content in pieces of n bytes. If n is even, it returns
// io.EOF together with the last piece.
type pieces struct {
	b []byte
	n int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), max(p.n, 1))], p.b)
	p.b = p.b[n:]
	if len(p.b) == 0 && p.n%2 == 0 {
		return n, io.EOF
	}
	return n, nil
}
