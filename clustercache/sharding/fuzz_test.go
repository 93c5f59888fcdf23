// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// FuzzPlan reads a plan as another replica, or anything else that may write
// Leases, has written it: what makes no sense is no plan, and no replica fails
// by following it.
func FuzzPlan(f *testing.F) {
	f.Add("a/1,b/2,AAEAAQ==,AQIDBA==", "AgECAQ==")
	f.Add("a/1,b/2,AAEAAQ==,AQIDBA==", "AgECAQ==,AAAAAA==,AAAAAA==")
	f.Add("a/1,b/2,AAEAAQ==,AQIDBA==", "AQEBAQ==,x")
	for _, text := range []string{
		"",
		",",
		"a,b,c",
		"a/1,b/2,AAEAAQ==,AQIDBA==",
		"a/1,b/2,AAEAAQ==,AQ==",
		"a/1,b/2,AAEAAQ==,",
		"a/1,AAAAAA==,",
		"a/1,AAAJAA==,AQIDBA==",
		"a/1,////////////,//////8P",
	} {
		f.Add(text, "")
	}
	f.Fuzz(func(t *testing.T, text, standbys string) {
		plan := sharding.DecodePlan(text, standbys)
		if len(plan.Members) > 0 && len(plan.Owners) > 0 {
			require.Equal(t, plan, sharding.DecodePlan(sharding.EncodePlan(plan)))
		}

		const slots = 4
		now := time.Unix(0, 0)
		r := protocol.New(protocol.Config{
			Charter:   "charter",
			Member:    "b",
			Slot:      func(n int) string { return "slot-" + strconv.Itoa(n) },
			Slots:     slots,
			Renew:     2 * time.Second,
			OwnFor:    10 * time.Second,
			DeadAfter: 15 * time.Second,
			Settle:    time.Second,
			Standbys:  1,
		})
		r.Replace(now, []protocol.Lease{{
			Role:     protocol.Charter,
			Name:     "charter",
			UID:      "0",
			Revision: "0",
			Format:   protocol.Format,
			Slots:    slots,
		}})
		member := func(name, uid string, p protocol.Plan, revision int) protocol.Lease {
			return protocol.Lease{
				Role:     protocol.Member,
				Name:     name,
				UID:      uid,
				Revision: strconv.Itoa(revision),
				Identity: name,
				TTL:      15 * time.Second,
				Plan:     p,
			}
		}

		owned := 0
		for second := range 20 {
			r.Observe(now, member("a", "1", plan, second)) // the eldest member
			actions, _ := r.Next(now)
			for _, a := range actions {
				switch a.Kind {
				case protocol.Join, protocol.Renew:
					r.Observe(now, member("b", "2", a.Plan, second))
				case protocol.Take:
					r.Observe(now, protocol.Lease{
						Role:     protocol.Slot,
						Name:     a.Name,
						UID:      a.Name,
						Revision: strconv.Itoa(second),
						Slot:     a.Slot,
						Holder:   a.Holder,
						Token:    a.Token,
					})
				case protocol.Gain:
					owned++
				}
				r.Answer(now, now, a, protocol.Done)
			}
			now = now.Add(time.Second)
		}
		if text == "a/1,b/2,AAEAAQ==,AQIDBA==" {
			require.Equal(t, 2, owned, "the replica follows a plan that makes sense")
		}
	})
}
