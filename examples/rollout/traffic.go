// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// traffic counts the operator's requests to an API server, according to the
// server's audit log.
type traffic struct{ probes, lists, watches, gets, writes int }

// trafficSince counts the requests that have reached a cluster since a time.
func trafficSince(c fleet.Cluster, since time.Time) (t traffic, err error) {
	recent := func(r testenv.Request) bool { return !r.Time.Before(since) }
	requests, err := c.Requests(testenv.UserAgent(userAgent), recent)
	for _, request := range requests {
		switch {
		case request.Resource == "":
			t.probes++
		case request.Verb == "list":
			t.lists++
		case request.Verb == "watch":
			t.watches++
		case request.Verb == "get":
			t.gets++
		default:
			t.writes++
		}
	}
	return t, err
}

// expectWrites expects a number of writes to a cluster since a time.
func (d *demo) expectWrites(c fleet.Cluster, since time.Time, want int, expected string) error {
	t, err := trafficSince(c, since)
	if err != nil {
		return err
	}
	return d.Expect(t.writes == want, expected, fmt.Sprintf("%d writes in its %s", t.writes, d.fleet.Record()))
}
