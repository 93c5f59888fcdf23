// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestSlicesHaveRoomForWhatIsInThem: and no more than the runtime rounds up to,
// since decoded objects are kept. Slices of slices and of their own type
// included, none shares memory with another.
func TestSlicesHaveRoomForWhatIsInThem(t *testing.T) {
	c := NewCodec()
	k := c.Kind(schema.GroupVersionKind{Version: "v1", Kind: "Zoo"})
	raw := func(n int) []byte {
		var strs, lists []string
		for i := range n {
			strs = append(strs, fmt.Sprintf(`"%d of %d"`, i, n))
			lists = append(lists, fmt.Sprintf(`[{"embedded":"%d"},null]`, i))
		}
		part := `{"string":"innermost"}`
		for i := range n {
			part = fmt.Sprintf(`{"int":%d,"list":[{},%s,{"int":%d}]}`, i, part, n)
		}
		return fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Zoo","metadata":{"name":"n"},"slice":[%s],"slices":[%s],"ptr":%s}`,
			strings.Join(strs, ","), strings.Join(lists, ","), part)
	}

	read := map[int]*zoo{}
	for n := range 70 {
		var z zoo
		require.NoError(t, mustPack(t, c, k, raw(n)).Into(&z))
		require.Len(t, z.Slice, n)
		require.LessOrEqual(t, cap(z.Slice), n+n/6+1)
		require.LessOrEqual(t, cap(z.Slices), n+n/6+1)
		read[n] = &z
	}
	for n, z := range read {
		require.Len(t, z.Slices, n)
		for i := range n {
			require.Equal(t, fmt.Sprintf("%d of %d", i, n), string(z.Slice[i]))
			require.Equal(t, fmt.Sprint(i), z.Slices[i][0].Embedded)
			require.Nil(t, z.Slices[i][1])
		}
		part := z.Ptr
		for i := range n {
			require.EqualValues(t, n-1-i, part.Int)
			require.EqualValues(t, n, part.List[2].Int)
			part = &part.List[1]
		}
		require.Equal(t, "innermost", part.String)
	}
}
