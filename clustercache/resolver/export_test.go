// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"testing"
	"time"
)

// SetPodDir replaces the kubelet's mount of the service account.
func SetPodDir(t *testing.T, dir string) {
	old := podDir
	podDir = dir
	t.Cleanup(func() { podDir = old })
}

// OnlyWhenNotified makes a FileResolver depend on notifications of the file
// system.
func OnlyWhenNotified(f *FileResolver) { f.rescan = 24 * time.Hour }

// RefusesAnchors reports whether a document is refused before it is decoded.
func RefusesAnchors(data []byte) bool { return checkAnchors(data) != nil }
