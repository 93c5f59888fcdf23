// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"fmt"
	"strconv"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// hub is the API server: objects, and the log of their changes.
type hub struct {
	leases   map[string]protocol.Lease
	revision int
	uids     int
	log      []change
	writes   int
	restores int
}

type change struct {
	lease   protocol.Lease
	deleted bool
}

func (h *hub) put(l protocol.Lease) {
	h.revision++
	l.Revision = strconv.Itoa(h.revision)
	h.leases[l.Name] = l
	h.log = append(h.log, change{lease: l})
}

// apply carries out a write of a process.
func (w *world) apply(p *process, a protocol.Action) protocol.Outcome {
	w.hub.writes++
	if a.Revision != "" && a.UID == "" {
		w.fail("%s writes to %s without its UID, which would create it if it was deleted", p.name, a.Name)
	}
	changes := len(w.hub.log)
	out := w.hub.apply(a, func() protocol.Lease { return w.create(p, a) })
	if len(w.hub.log) > changes {
		w.notify()
	}
	return out
}

// apply carries out a write. Leases that it creates are born.
func (h *hub) apply(a protocol.Action, born func() protocol.Lease) protocol.Outcome {
	old, exists := h.leases[a.Name]
	matches := exists && (a.UID == "" || a.UID == old.UID) && (a.Revision == "" || a.Revision == old.Revision)
	next := old
	switch a.Kind {
	case protocol.Found, protocol.Join:
		if exists {
			return protocol.Refused
		}
		next = born()
	case protocol.Renew:
		if !matches {
			return protocol.Refused
		}
		if a.Renewal != 0 {
			next.Renewal = a.Renewal
		}
		next.Plan, next.Warm, next.Weight, next.Loads = a.Plan, a.Warm, a.Weight, a.Loads
		if a.Draining != nil {
			next.Draining = *a.Draining
		}
		next.Leaving = next.Leaving || a.Leaving // a patch that says nothing of it leaves it
	case protocol.Take:
		if exists != (a.Revision != "") || exists && !matches {
			return protocol.Refused
		}
		if !exists {
			next = born()
		}
		next.Holder, next.Token = a.Holder, a.Token
	case protocol.Release:
		if !matches {
			return protocol.Refused
		}
		next.Holder = ""
	case protocol.Bury, protocol.Quit:
		if !matches {
			return protocol.Refused
		}
		delete(h.leases, a.Name)
		h.revision++
		h.log = append(h.log, change{lease: old, deleted: true})
		return protocol.Done
	default:
		panic("not a write")
	}
	h.put(next)

	return protocol.Done
}

func (w *world) create(p *process, a protocol.Action) protocol.Lease {
	w.hub.uids++
	l := protocol.Lease{
		Name:    a.Name,
		UID:     fmt.Sprintf("uid%d", w.hub.uids),
		Created: epoch.Add(w.now.Truncate(time.Second)),
	}
	switch a.Kind {
	case protocol.Found:
		l.Role, l.Format, l.Slots = protocol.Charter, protocol.Format, w.slots
	case protocol.Join:
		l.Role, l.Identity, l.TTL = protocol.Member, p.identity, w.config.DeadAfter
	default:
		l.Role, l.Slot = protocol.Slot, a.Slot
	}
	return l
}

func (w *world) notify() {
	for _, p := range w.processes {
		p.watch()
	}
}
