// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"strings"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Delete deletes a Lease.
func (s *Sharding) Delete(ctx context.Context, name string) error {
	return s.leases.Delete(ctx, name, metav1.DeleteOptions{})
}

// Until sets when the ownership ends, as if Start had not run since.
func (s *Sharding) Until(t time.Time) {
	s.table.Store(&table{until: t, slots: s.table.Load().slots})
}

// Shifted returns a time with another reading of the wall clock, and the same of
// the monotonic one.
func Shifted(t time.Time, seconds int) time.Time {
	(*[2]uint64)(unsafe.Pointer(&t))[0] += uint64(int64(seconds) << 30) // bits 30 to 62 are the wall clock's seconds
	return t
}

// Hold makes a replica that does not run hold a cluster.
func (s *Sharding) Hold(cluster client.ObjectKey, until time.Time) {
	t := &table{until: until, slots: make([]holding, s.options.Slots)}
	never := func(func()) (stop func() bool) { return func() bool { return true } }
	t.slots[s.Slot(cluster)] = holding{token: 1, onLoss: never}
	s.table.Store(t)
}

// Suspend makes it look to the replica as if the machine had not run for a
// while: the wall clock is ahead by seconds, and the monotonic one is not. It
// returns when the replica has noticed.
func (s *Sharding) Suspend(seconds int) {
	noticed := make(chan struct{})
	s.post(context.Background(), func(now time.Time) {
		_, uid, _ := strings.Cut(s.replica.ID(), "/")
		sent := Shifted(now.Add(time.Nanosecond), -seconds)
		s.replica.Answer(now, sent, protocol.Action{Kind: protocol.Renew, UID: uid}, protocol.Done)
	})
	s.post(context.Background(), func(time.Time) { close(noticed) })
	<-noticed
}

// DecodePlan reads the plan of a member's Lease.
func DecodePlan(plan, standbys string) protocol.Plan { return decodePlan(plan, standbys) }

// EncodePlan writes the plan of a member's Lease.
func EncodePlan(p protocol.Plan) (plan, standbys string) { return encodePlan(p) }

// Weigh asks for the weights of clusters once. It returns them, and the load of
// each slot.
func (s *Sharding) Weigh(
	clusters []client.ObjectKey, before map[client.ObjectKey]int,
) (weights map[client.ObjectKey]int, loads []int) {
	weights = s.weights(clusters, before)
	return weights, *s.loads.Load()
}
