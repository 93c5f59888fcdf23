// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/fields"
)

// TestHazardEscapedNameMissesANote: RBAC objects may have names with commas,
// equals signs and backslashes, which the text of a field selector escapes. A
// watch by such a name that lagged behind was not notified of what another
// watch had shown.
func TestHazardEscapedNameMissesANote(t *testing.T) {
	for _, name := range []string{"a", "system:a", "a,b", "a=b", `a\b`} {
		w := newWant(Selection{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
		require.True(t, w.Decides(name), w.FieldSelector)
		require.True(t, w.mayBeNamed("", name), w.FieldSelector)
		require.False(t, w.mayBeNamed("", "other"), w.FieldSelector)
	}
}
