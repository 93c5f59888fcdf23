// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// TestHazardListOfAnAuditHasNoEnd: an audit keeps a bounded number of
// differences, whatever a server shows, and the second list checks only those.
func TestHazardListOfAnAuditHasNoEnd(t *testing.T) {
	a := &audit{wrong: map[types.NamespacedName]difference{}}
	show := func() {
		for i := range 10 * maxDifferent {
			a.differ(types.NamespacedName{Name: strconv.Itoa(i)}, difference{version: "1"})
		}
	}
	show()
	require.Len(t, a.wrong, maxDifferent)
	a.owed, a.wrong = map[types.NamespacedName]difference{{Name: "1"}: {version: "1"}}, map[types.NamespacedName]difference{}
	show()
	require.Equal(t, a.owed, a.wrong)
}
