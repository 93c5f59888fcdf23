// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/status"
)

// judge compares the frames that were drawn with what was true.
func (d *demo) judge(context.Context) error {
	for _, check := range []func() error{d.judgeOutage, d.judgeReturn, d.judgeEnd} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// judgeOutage judges the last frame before the API server was started again.
func (d *demo) judgeOutage() error {
	worst := d.seen.down.rows[0]
	if err := d.Expect(clusterName(worst.Cluster) == stopped && worst.Phase == status.PhaseDisconnected &&
		worst.reason() != "" && worst.why() != "",
		stopped+" was the first line while its API server was stopped, and said why", worst.reason()); err != nil {
		return err
	}
	// What was under way when the server ended may have arrived later.
	if err := d.Expect(worst.staleness() >= d.seen.silent-time.Second,
		"it was at least as stale as its API server was silent",
		fmt.Sprintf("%s, and %s", age(worst.staleness()), age(d.seen.silent))); err != nil {
		return err
	}
	before := d.seen.steady.row(stopped)
	if err := d.Expect(worst.Objects == before.Objects && worst.Objects > 0, "it kept its objects",
		fmt.Sprintf("%d", worst.Objects)); err != nil {
		return err
	}
	ready := 0
	for _, r := range d.seen.down.rows[1:] {
		if r.Phase == status.PhaseReady && r.rate > 0 {
			ready++
		}
	}
	return d.Expect(ready == len(d.writers)-1, "the others were Ready, and their events arrived",
		fmt.Sprintf("%d clusters", ready))
}

func (d *demo) judgeReturn() error {
	r := d.seen.back.row(stopped)
	return d.Expect(r.Phase == status.PhaseReady && r.rate > 0 && r.Connects >= 2,
		stopped+" was Ready again once its API server was, with events", shown(r))
}

// judgeEnd judges the last frame, which was drawn after the last write.
func (d *demo) judgeEnd() error {
	for _, c := range d.fleet.Clusters() {
		r := d.seen.end.row(c.Name())
		if err := d.Expect(r.Objects == d.seen.objects[c.Name()],
			c.Name()+" had the objects that its API server lists", fmt.Sprintf("%d", r.Objects)); err != nil {
			return err
		}
		// Changes of one object are merged if they arrive faster than they are
		// handled, as after an outage; and an API server writes by itself, too.
		written := d.seen.written[c.Name()]
		if err := d.Expect(10*r.events >= 8*written && 10*r.events <= 12*written,
			"its events were the writes, give or take a fifth",
			fmt.Sprintf("%d events, %d writes", r.events, written)); err != nil {
			return err
		}
	}
	return nil
}
