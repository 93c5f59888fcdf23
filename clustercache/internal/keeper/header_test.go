// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// TestObjectsOfAnotherFormatAreNotRead: neither those of an earlier revision, nor
// by it those of this one.
func TestObjectsOfAnotherFormatAreNotRead(t *testing.T) {
	c, err := newCodec(nil)
	require.NoError(t, err)
	b, err := c.of(headers)
	require.NoError(t, err)
	key := informerpool.Key{Namespace: "ns"}
	of := c.idOf(key)
	for format, want := range map[int]error{
		packed.StoredFormat - 1: errFormat,
		packed.StoredFormat:     nil,
		packed.StoredFormat + 1: errFormat,
	} {
		content, err := json.Marshal(&header{Key: key, Packed: format})
		require.NoError(t, err)
		_, err = b.readHeader(of, b.encode(of[:], content))
		require.Equal(t, want, err)
		require.Equal(t, "format", reason(errFormat))
	}
}
