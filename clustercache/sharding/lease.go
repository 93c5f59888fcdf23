// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// Labels and annotations of the Leases.
const (
	prefix = "fleetcache.github.io/"
	// groupLabel selects the Leases of a group; roleLabel says what each is
	// for.
	groupLabel = prefix + "sharding"
	roleLabel  = prefix + "sharding-role"

	formatAnnotation   = prefix + "sharding-format"   // charter
	slotsAnnotation    = prefix + "sharding-slots"    // charter
	programAnnotation  = prefix + "sharding-program"  // charter: of the replicas
	renewalAnnotation  = prefix + "sharding-renewal"  // member: the number of the last one
	leavingAnnotation  = prefix + "sharding-leaving"  // member
	planAnnotation     = prefix + "sharding-plan"     // member: of the eldest
	warmAnnotation     = prefix + "sharding-warm"     // member: slots with filled caches
	standbysAnnotation = prefix + "sharding-standbys" // member: of the plan
	weightAnnotation   = prefix + "sharding-weight"   // member
	loadsAnnotation    = prefix + "sharding-loads"    // member: of slots that it holds, by ClusterWeight
	drainAnnotation    = prefix + "sharding-drain"    // member: people may set it
	selectorAnnotation = prefix + "sharding-selector" // charter: of the clusters
	slotAnnotation     = prefix + "sharding-slot"     // slot: its number
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
		out.Program = l.Annotations[programAnnotation]
		out.Selector = l.Annotations[selectorAnnotation]
	case protocol.Member:
		out.Identity = ptr.Deref(l.Spec.HolderIdentity, "")
		out.Renewed = ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}).Time
		out.TTL = time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
		out.Renewal, _ = strconv.ParseInt(l.Annotations[renewalAnnotation], 10, 64) // 0: none
		out.Leaving = l.Annotations[leavingAnnotation] != ""
		out.Plan = decodePlan(l.Annotations[planAnnotation], l.Annotations[standbysAnnotation])
		out.Weight, _ = strconv.Atoi(l.Annotations[weightAnnotation]) // 0: it says none
		drain := l.Annotations[drainAnnotation]
		out.Draining = drain != "" && drain != "false"
		out.Loads = decodeLoads(l.Annotations[loadsAnnotation])
		out.Warm, _ = base64.StdEncoding.DecodeString(l.Annotations[warmAnnotation]) // or none
	case protocol.Slot:
		out.Holder = ptr.Deref(l.Spec.HolderIdentity, "")
		out.Token = int64(ptr.Deref(l.Spec.LeaseTransitions, 0))
		out.Since = ptr.Deref(l.Spec.AcquireTime, metav1.MicroTime{}).Time
		out.Slot, err = strconv.Atoi(l.Annotations[slotAnnotation])
	}
	return out, known && err == nil
}

// sorted returns the Leases of a group by their roles. The charter is blank if it
// is not among them.
func sorted(leases []coordinationv1.Lease) (charter protocol.Lease, members, slots []protocol.Lease) {
	for i := range leases {
		l, ours := decode(&leases[i])
		switch {
		case !ours:
		case l.Role == protocol.Charter:
			charter = l
		case l.Role == protocol.Member:
			members = append(members, l)
		case l.Role == protocol.Slot:
			slots = append(slots, l)
		}
	}
	return charter, members, slots
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
	l.Annotations[programAnnotation] = s.options.Program
	if s.options.Selector != "" {
		l.Annotations[selectorAnnotation] = s.options.Selector
	}
	return l
}

// foreign returns whose a Lease is, if it is not of the group.
func (s *Sharding) foreign(l *coordinationv1.Lease) (owner string, foreign bool) {
	group, role := l.Labels[groupLabel], l.Labels[roleLabel]
	switch {
	case group == s.options.Name && role != "":
		return "", false
	case group != "":
		return fmt.Sprintf("group %q", group), true
	}
	owner = "something else than a sharding"
	if holder := ptr.Deref(l.Spec.HolderIdentity, ""); holder != "" {
		owner += fmt.Sprintf(", held by %q", holder)
	}
	if len(l.ManagedFields) > 0 {
		owner += fmt.Sprintf(", written by %q", l.ManagedFields[0].Manager)
	}
	return owner, true
}

func (s *Sharding) memberLease(a protocol.Action, now time.Time) *coordinationv1.Lease {
	l := s.blank(a.Name, "member")
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
// that it is still the same Lease. Every replica receives every renewal, so what
// is empty is left out, and so are the managed fields, which servers do not track
// any more once they are reset.
func renewal(a protocol.Action, now time.Time) ([]byte, error) {
	plan, standbys := encodePlan(a.Plan)
	annotations := map[string]*string{
		renewalAnnotation:  new(strconv.FormatInt(a.Renewal, 10)),
		planAnnotation:     unlessEmpty(plan),
		standbysAnnotation: unlessEmpty(standbys),
		warmAnnotation:     new(base64.StdEncoding.EncodeToString(a.Warm)),
		weightAnnotation:   new(strconv.Itoa(a.Weight)),
		loadsAnnotation:    unlessEmpty(encodeLoads(a.Loads)),
	}
	if a.Draining != nil {
		annotations[drainAnnotation] = new(strconv.FormatBool(*a.Draining))
	}
	if a.Leaving {
		annotations[leavingAnnotation] = new("true")
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid":           a.UID,
			"annotations":   annotations,
			"managedFields": []metav1.ManagedFieldsEntry{{}},
		},
		"spec": map[string]any{"renewTime": metav1.MicroTime{Time: now}},
	})
}

// unlessEmpty returns the value of an annotation in a merge patch, which removes
// one that is empty.
func unlessEmpty(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

func (s *Sharding) slotLease(a protocol.Action, now time.Time) *coordinationv1.Lease {
	l := s.blank(a.Name, "slot")
	// Without its UID, an update of a Lease that was deleted meanwhile would
	// create it, with a token that is too low.
	l.UID, l.ResourceVersion = types.UID(a.UID), a.Revision
	l.Annotations[slotAnnotation] = strconv.Itoa(a.Slot)
	l.Spec.LeaseTransitions = new(int32(a.Token))
	l.Spec.AcquireTime = &metav1.MicroTime{Time: now} // of a release: since when nothing holds it
	if a.Kind == protocol.Take {
		l.Spec.HolderIdentity = &a.Holder
	}
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

// encodePlan returns nothing for a plan without members. The members are there
// in plain text, 70 bytes each; the rest takes 700 bytes for 256 slots, and 350
// for each standby. Standbys are apart from the rest, which earlier versions
// read.
func encodePlan(p protocol.Plan) (plan, standbys string) {
	if len(p.Members) == 0 {
		return "", ""
	}
	var ranks []string
	for _, rank := range p.Standbys {
		seats := slices.Clone(rank)
		for n := range seats {
			seats[n]++ // 0 is a vacant one
		}
		ranks = append(ranks, encodeInts(seats))
	}
	words := append(slices.Clone(p.Members), encodeInts(p.Owners), encodeInts(p.Counts))
	return strings.Join(words, ","), strings.Join(ranks, ",")
}

// decodePlan returns a plan without members if plan makes no sense, and one
// without standbys if these make none.
func decodePlan(plan, standbys string) protocol.Plan {
	words := strings.Split(plan, ",")
	if len(words) < 3 {
		return protocol.Plan{}
	}
	members := words[:len(words)-2]
	owners, counts := decodeInts(words[len(members)]), decodeInts(words[len(members)+1])
	out := protocol.Plan{
		Members: members,
		Owners:  owners,
		Counts:  counts,
	}
	for rank := range strings.SplitSeq(standbys, ",") {
		seats := decodeInts(rank)
		for n := range seats {
			seats[n]--
		}
		sound := len(seats) == len(owners) && !slices.ContainsFunc(seats, func(m int) bool { return m >= len(members) })
		if !sound || len(out.Standbys) == len(members) {
			out.Standbys = nil
			break
		}
		out.Standbys = append(out.Standbys, seats)
	}
	return out
}

// encodeLoads writes slots and their loads by turns, each slot as the distance
// from the last one.
func encodeLoads(loads map[int]int) string {
	var numbers []int
	last := 0
	for _, slot := range slices.Sorted(maps.Keys(loads)) {
		numbers = append(numbers, slot-last, loads[slot])
		last = slot
	}
	return encodeInts(numbers)
}

// decodeLoads returns nothing if text makes no sense.
func decodeLoads(text string) map[int]int {
	numbers := decodeInts(text)
	if len(numbers) == 0 || len(numbers)%2 != 0 {
		return nil
	}
	out, slot := map[int]int{}, 0
	for i := 0; i < len(numbers); i += 2 {
		slot += numbers[i]
		out[slot] = numbers[i+1]
	}
	return out
}

// maxNumber bounds the numbers in Leases.
const maxNumber = 1 << 20

// encodeInts writes numbers as varints.
func encodeInts(numbers []int) string {
	var out []byte
	for _, n := range numbers {
		out = binary.AppendUvarint(out, uint64(n))
	}
	return base64.StdEncoding.EncodeToString(out)
}

// decodeInts returns nothing if text makes no sense.
func decodeInts(text string) []int {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	var out []int
	for len(raw) > 0 {
		n, size := binary.Uvarint(raw)
		if size <= 0 || n > maxNumber || len(out) == 2*maxSlots {
			return nil
		}
		out, raw = append(out, int(n)), raw[size:]
	}
	return out
}
