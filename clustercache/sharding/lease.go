// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// Labels and annotations of the Leases.
const (
	prefix = "fleetcache.github.io/"
	// groupLabel selects the Leases of a group; roleLabel says what each is
	// for.
	groupLabel = prefix + "sharding"
	roleLabel  = prefix + "sharding-role"

	formatAnnotation  = prefix + "sharding-format"  // charter
	slotsAnnotation   = prefix + "sharding-slots"   // charter
	leavingAnnotation = prefix + "sharding-leaving" // member
	countsAnnotation  = prefix + "sharding-counts"  // member: clusters by slot
	warmAnnotation    = prefix + "sharding-warm"    // member: slots with filled caches
	slotAnnotation    = prefix + "sharding-slot"    // slot: its number
	heirAnnotation    = prefix + "sharding-heir"    // slot
)

var roles = map[string]protocol.Role{
	"group":  protocol.Charter,
	"member": protocol.Member,
	"slot":   protocol.Slot,
}

// decode returns what the protocol reads from a Lease. It reports false for a
// Lease that is none of ours.
func decode(l *coordinationv1.Lease) (protocol.Lease, bool) {
	role, known := roles[l.Labels[roleLabel]]
	out := protocol.Lease{
		Role:     role,
		Name:     l.Name,
		UID:      string(l.UID),
		Revision: l.ResourceVersion,
		Created:  l.CreationTimestamp.Time,
	}
	var err error
	switch role {
	case protocol.Charter:
		out.Format = l.Annotations[formatAnnotation]
		out.Slots, _ = strconv.Atoi(l.Annotations[slotsAnnotation]) // 0 fits no group
	case protocol.Member:
		out.Identity = value(l.Spec.HolderIdentity)
		out.TTL = time.Duration(value(l.Spec.LeaseDurationSeconds)) * time.Second
		out.Leaving = l.Annotations[leavingAnnotation] != ""
		out.Counts = decodeCounts(l.Annotations[countsAnnotation])
		out.Warm, _ = base64.StdEncoding.DecodeString(l.Annotations[warmAnnotation]) // or none
	case protocol.Slot:
		out.Holder, out.Heir = value(l.Spec.HolderIdentity), l.Annotations[heirAnnotation]
		out.Token = int64(value(l.Spec.LeaseTransitions))
		out.Slot, err = strconv.Atoi(l.Annotations[slotAnnotation])
	}
	return out, known && err == nil
}

func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// blank returns a Lease of the group without content.
func (s *Sharding) blank(name, role string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Namespace:   s.options.Namespace,
		Labels:      map[string]string{groupLabel: s.options.Name, roleLabel: role},
		Annotations: map[string]string{},
	}}
}

func (s *Sharding) charterLease(name string) *coordinationv1.Lease {
	l := s.blank(name, "group")
	l.Annotations[formatAnnotation] = protocol.Format
	l.Annotations[slotsAnnotation] = strconv.Itoa(s.options.Slots)
	return l
}

func (s *Sharding) memberLease(a protocol.Action, now time.Time) *coordinationv1.Lease {
	l := s.blank(a.Name, "member")
	l.Annotations[countsAnnotation] = encodeCounts(a.Counts)
	l.Annotations[warmAnnotation] = base64.StdEncoding.EncodeToString(a.Warm)
	l.Spec = coordinationv1.LeaseSpec{
		HolderIdentity:       &s.options.Identity,
		LeaseDurationSeconds: new(int32(s.options.LeaseDuration / time.Second)),
		AcquireTime:          &metav1.MicroTime{Time: now},
		RenewTime:            &metav1.MicroTime{Time: now},
	}
	return l
}

// renewal returns a merge patch. A patch needs no resourceVersion, so that a
// renewal whose answer was lost does not refuse the next; the UID makes sure
// that it is still the same Lease.
func renewal(a protocol.Action, now time.Time) ([]byte, error) {
	annotations := map[string]string{
		countsAnnotation: encodeCounts(a.Counts),
		warmAnnotation:   base64.StdEncoding.EncodeToString(a.Warm),
	}
	if a.Leaving {
		annotations[leavingAnnotation] = "true"
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": a.UID, "annotations": annotations},
		"spec":     map[string]any{"renewTime": metav1.MicroTime{Time: now}},
	})
}

func (s *Sharding) slotLease(a protocol.Action, now time.Time) *coordinationv1.Lease {
	l := s.blank(a.Name, "slot")
	l.ResourceVersion = a.Revision
	l.Annotations[slotAnnotation] = strconv.Itoa(a.Slot)
	l.Spec.LeaseTransitions = new(int32(a.Token))
	if a.Kind == protocol.Release {
		l.Annotations[heirAnnotation] = a.Heir
		return l
	}
	l.Spec.HolderIdentity = &a.Holder
	l.Spec.AcquireTime = &metav1.MicroTime{Time: now}
	return l
}

// conditions returns the options of a deletion.
func conditions(a protocol.Action) metav1.DeleteOptions {
	p := &metav1.Preconditions{UID: new(types.UID(a.UID))}
	if a.Revision != "" {
		p.ResourceVersion = &a.Revision
	}
	return metav1.DeleteOptions{Preconditions: p}
}

// encodeCounts writes counts as varints, 350 bytes for 256 slots.
func encodeCounts(counts []int) string {
	var out []byte
	for _, n := range counts {
		out = binary.AppendUvarint(out, uint64(n))
	}
	return base64.StdEncoding.EncodeToString(out)
}

// decodeCounts returns no counts if they make no sense.
func decodeCounts(text string) []int {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	var out []int
	for len(raw) > 0 {
		n, size := binary.Uvarint(raw)
		if size <= 0 || n > 1<<20 || len(out) == maxSlots {
			return nil
		}
		out, raw = append(out, int(n)), raw[size:]
	}
	return out
}
