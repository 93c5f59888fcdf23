// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"slices"
	"sync"

	"github.com/fleetcache/fleetcache/internal/transport"
)

// maxCertificates is how many certificates are remembered for one cluster. Each
// server of a control plane may have its own.
const maxCertificates = 16

// certificates holds those that a cluster's servers have shown. A new one
// belongs to a server that was replaced, renewed or restored: the caches are
// audited against it soon.
type certificates struct {
	mu    sync.Mutex // protects known; nothing else is locked under it
	known []transport.Fingerprint
}

// add records a certificate, and reports whether it is new and not the first.
// The zero fingerprint is no certificate.
func (s *certificates) add(f transport.Fingerprint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if f == (transport.Fingerprint{}) || slices.Contains(s.known, f) {
		return false
	}
	first := len(s.known) == 0
	s.known = append(s.known, f)
	if len(s.known) > maxCertificates {
		s.known = slices.Delete(s.known, 0, 1)
	}

	return !first
}
