// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import "testing"

// SetPodDir stands in for kubelet's mount of the service account.
func SetPodDir(t *testing.T, dir string) {
	old := podDir
	podDir = dir
	t.Cleanup(func() { podDir = old })
}
