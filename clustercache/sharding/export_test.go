// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// Write carries out a write of the protocol.
func (s *Sharding) Write(ctx context.Context, a protocol.Action) protocol.Outcome {
	return outcomeOf(a, s.write(ctx, a, time.Now()))
}

// Read returns a Lease as the protocol sees it.
func (s *Sharding) Read(ctx context.Context, name string) (protocol.Lease, error) {
	l, err := s.leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return protocol.Lease{}, err
	}
	out, _ := decode(l)
	return out, nil
}

// Until sets when the ownership ends, as if Start had not run since.
func (s *Sharding) Until(t time.Time) {
	s.table.Store(&table{until: t, slots: s.table.Load().slots})
}

// DecodePlan reads the plan of a member's Lease.
func DecodePlan(text string) protocol.Plan { return decodePlan(text) }

// EncodePlan writes the plan of a member's Lease.
func EncodePlan(p protocol.Plan) string { return encodePlan(p) }
