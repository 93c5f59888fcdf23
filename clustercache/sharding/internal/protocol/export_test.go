// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"reflect"
	"slices"
	"time"
)

// Holds returns the token by which the replica owned a slot at the last call of
// [Replica.Next], whether the slot is draining, and 0 if it did not own the
// slot. It still does until [Replica.Until].
func (r *Replica) Holds(n int) (token int64, draining bool) {
	return r.slots[n].owned, !r.slots[n].draining.IsZero()
}

// Holder returns the [HolderID] in a slot's Lease, and its token.
func (r *Replica) Holder(n int) (holder string, token int64) {
	return r.slots[n].Holder, r.slots[n].Token
}

// Clone returns a copy of the replica. The two share nothing that changes.
func (r *Replica) Clone() *Replica {
	c := *r
	c.members = make([]*member, len(r.members))
	for i, m := range r.members {
		copied := *m
		c.members[i] = &copied
	}
	c.slots = slices.Clone(r.slots)
	c.own.sent = slices.Clone(r.own.sent)
	return &c
}

// Fingerprint returns a hash of all that the replica knows.
func (r *Replica) Fingerprint() uint64 {
	v, out := reflect.ValueOf(r).Elem(), uint64(0)
	for i := range v.NumField() {
		if v.Type().Field(i).Name != "cfg" {
			out = fingerprint(out, v.Field(i))
		}
	}
	return out
}

// Fingerprint returns a hash of a value that has no functions.
func Fingerprint(v any) uint64 { return fingerprint(0, reflect.ValueOf(v)) }

var timeType = reflect.TypeFor[time.Time]()

func fingerprint(h uint64, v reflect.Value) uint64 {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return mix(h ^ 1)
		}
		return mix(h ^ 2)
	case reflect.Int, reflect.Int64:
		return mix(h ^ uint64(v.Int()))
	case reflect.Uint8, reflect.Uint64:
		return mix(h ^ v.Uint())
	case reflect.String:
		return mix(h ^ hash(v.String()))
	case reflect.Pointer:
		if v.IsNil() {
			return mix(h ^ 3)
		}
		return fingerprint(h, v.Elem())
	case reflect.Map:
		var sum uint64 // in any order
		for _, key := range v.MapKeys() {
			sum += fingerprint(fingerprint(0, key), v.MapIndex(key))
		}
		return mix(h ^ sum)
	case reflect.Slice:
		h = mix(h ^ uint64(v.Len()))
		for i := range v.Len() {
			h = fingerprint(h, v.Index(i))
		}
		return h
	case reflect.Struct:
		if v.Type() == timeType { // without its location
			return mix(mix(h^v.Field(0).Uint()) ^ uint64(v.Field(1).Int()))
		}
		fields := v.NumField()
		for i := range fields { // v.Fields describes each besides, which takes longer than all else
			h = fingerprint(h, v.Field(i))
		}
		return h
	default:
		panic("no fingerprint of " + v.Type().String())
	}
}

// GainsAfterQuit makes the replica follow an earlier rule until the returned
// function is called: it gained slots under a Lease whose deletion it had sent,
// until that was answered.
func (r *Replica) GainsAfterQuit() (restore func()) {
	quitting := r.own.quitting
	if r.own.quit {
		return func() {}
	}
	r.own.quitting = ""
	return func() {
		if r.own.quitting == "" {
			r.own.quitting = quitting
		}
	}
}

// ForgetEnd makes the replica follow an earlier rule: it gained slots by a view
// from before its ownership had ended by the clock.
func (r *Replica) ForgetEnd() { r.own.ended = time.Time{} }

// RenewUnheard makes the replica follow an earlier rule: it renewed its Lease
// whether or not it heard of the hub.
func (r *Replica) RenewUnheard() { r.own.unheard, r.own.renewUntil = time.Time{}, time.Unix(1<<40, 0) }

// Revoke makes the replica follow an earlier rule: it took a refused renewal for
// the deletion of its Lease.
func (r *Replica) Revoke() { r.own.quitting, r.own.quit = r.own.uid, true }

// RenewSoon makes the replica renew its Lease twice as often as it should.
func (r *Replica) RenewSoon(now time.Time) {
	if soon := now.Add(r.cfg.Renew / 2); r.own.due.After(soon) {
		r.own.due = soon
	}
}
