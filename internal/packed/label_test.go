// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLabelIsThatOfTheMap(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	for _, l := range []string{`null`, `{}`, `{"a":"b"}`, `{"a":"b","c":"","d\u0065":"f"}`, `{"a":"x","a":"b"}`,
		`{"a":null}`} {
		o := mustPack(t, c, k, []byte(`{"metadata":{"name":"n","labels":`+l+`}}`))
		for _, key := range []string{"a", "c", "de", "zz", ""} {
			want, has := o.GetLabels()[key]
			value, ok := o.Label(key)
			require.Equal(t, has, ok, "%s of %s", key, l)
			require.Equal(t, want, value, "%s of %s", key, l)
		}
	}
}
