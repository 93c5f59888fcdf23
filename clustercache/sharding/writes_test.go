// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestWritesAreConditional is what the protocol's safety rests on: a write
// whose condition is not met is refused, by real and by fake API servers.
func TestWritesAreConditional(t *testing.T) {
	server := fakeapi.New(fakeapi.Options{})
	for name, config := range map[string]*rest.Config{
		"fake": {Host: "http://hub", Transport: server.Transport()},
		"real": testenv.Start(t, 1)[0].Config(),
	} {
		t.Run(name, func(t *testing.T) { testWrites(t, config) })
	}
}

func testWrites(t *testing.T, config *rest.Config) {
	s, err := sharding.New(config, sharding.Options{
		Namespace: "default",
		Name:      "g",
		Identity:  "a",
	})
	require.NoError(t, err)
	write := func(want protocol.Outcome, a protocol.Action) {
		t.Helper()
		require.Equal(t, want, s.Write(t.Context(), a), "%+v", a)
	}
	read := func(name string) protocol.Lease {
		t.Helper()
		l, err := s.Read(t.Context(), name)
		require.NoError(t, err)
		return l
	}

	write(protocol.Done, protocol.Action{Kind: protocol.Found, Name: "g"})
	write(protocol.Refused, protocol.Action{Kind: protocol.Found, Name: "g"})
	charter := read("g")
	require.Equal(t, sharding.DefaultSlots, charter.Slots)
	require.Equal(t, protocol.Format, charter.Format)

	counts := make([]int, sharding.DefaultSlots)
	counts[1], counts[200] = 300, 7
	write(protocol.Done, protocol.Action{Kind: protocol.Join, Name: "m", Counts: counts})
	write(protocol.Refused, protocol.Action{Kind: protocol.Join, Name: "m"})
	joined := read("m")
	require.Equal(t, counts, joined.Counts)
	require.Equal(t, "a", joined.Identity)
	require.Equal(t, 15*time.Second, joined.TTL)
	write(protocol.Refused, protocol.Action{Kind: protocol.Renew, Name: "m", UID: "another"})
	write(protocol.Refused, protocol.Action{Kind: protocol.Renew, Name: "none", UID: joined.UID})
	write(protocol.Done, protocol.Action{
		Kind:    protocol.Renew,
		Name:    "m",
		UID:     joined.UID,
		Leaving: true,
		Warm:    protocol.Set{0, 0b101},
	})
	renewed := read("m")
	require.True(t, renewed.Leaving)
	require.False(t, renewed.Warm.Has(7))
	require.True(t, renewed.Warm.Has(8))
	require.True(t, renewed.Warm.Has(10))
	require.False(t, renewed.Warm.Has(16))
	require.Empty(t, renewed.Counts)
	require.NotEqual(t, joined.Revision, renewed.Revision)

	take := protocol.Action{
		Kind:   protocol.Take,
		Name:   "s",
		Slot:   17,
		Holder: protocol.HolderID("m", joined.UID),
		Token:  4,
	}
	write(protocol.Done, take)
	write(protocol.Refused, take)
	taken := read("s")
	require.Equal(t, take.Holder, taken.Holder)
	require.Equal(t, 17, taken.Slot)
	require.EqualValues(t, 4, taken.Token)
	release := protocol.Action{
		Kind:     protocol.Release,
		Name:     "s",
		Slot:     17,
		Revision: taken.Revision,
		Heir:     "heir/1",
		Token:    4,
	}
	write(protocol.Done, release)
	write(protocol.Refused, release)
	released := read("s")
	require.Empty(t, released.Holder)
	require.Equal(t, "heir/1", released.Heir)
	require.EqualValues(t, 4, released.Token)
	take.Revision, take.Token = taken.Revision, 5
	write(protocol.Refused, take)
	take.Revision = released.Revision
	write(protocol.Done, take)
	require.Empty(t, read("s").Heir)

	bury := protocol.Action{
		Kind:     protocol.Bury,
		Name:     "m",
		UID:      joined.UID,
		Revision: joined.Revision,
	}
	write(protocol.Refused, bury)
	bury.Revision, bury.UID = renewed.Revision, "another"
	write(protocol.Refused, bury)
	bury.UID = joined.UID
	write(protocol.Done, bury)
	write(protocol.Refused, bury)
	write(protocol.Refused, protocol.Action{Kind: protocol.Renew, Name: "m", UID: joined.UID})
	write(protocol.Refused, protocol.Action{Kind: protocol.Quit, Name: "m", UID: joined.UID})
}
