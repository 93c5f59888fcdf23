// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"sync/atomic"

	"github.com/fleetcache/fleetcache/internal/transport"
)

// busyness records which queries the API server last answered with 429. Such a
// server is alive, and its watches work, so its cluster stays connected. The
// cluster's status reports why other requests may fail.
//
// Probes and identity proofs are recorded apart: a probe is often exempt from
// the limit that other requests meet, and its answer must not hide theirs.
type busyness struct {
	probe, proof atomic.Pointer[error]
}

func (b *busyness) noteProbe(err error) { note(&b.probe, err) }

func (b *busyness) noteProof(err error) { note(&b.proof, err) }

// note keeps a 429 until the same query has another result.
func note(at *atomic.Pointer[error], err error) {
	if transport.Classify(err) == transport.Throttled {
		at.Store(&err)
		return
	}
	at.Store(nil)
}

// cause returns the 429, or nil if the server is not busy.
func (b *busyness) cause() error {
	for _, at := range []*atomic.Pointer[error]{&b.proof, &b.probe} {
		if err := at.Load(); err != nil {
			return *err
		}
	}
	return nil
}
