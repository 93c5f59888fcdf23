// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
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
		t.Run(name, func(t *testing.T) {
			testWrites(t, config)
			testUIDs(t, config)
		})
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

	plan := protocol.Plan{
		Members: []string{"m/1", "n/2"},
		Owners:  make([]int, sharding.DefaultSlots),
		Counts:  make([]int, sharding.DefaultSlots),
	}
	plan.Owners[17], plan.Counts[1], plan.Counts[200] = 1, 300, 7
	write(protocol.Done, protocol.Action{Kind: protocol.Join, Name: "m"})
	write(protocol.Refused, protocol.Action{Kind: protocol.Join, Name: "m"})
	joined := read("m")
	require.Empty(t, joined.Plan)
	require.Equal(t, "a", joined.Identity)
	require.Equal(t, 15*time.Second, joined.TTL)
	write(protocol.Refused, protocol.Action{Kind: protocol.Renew, Name: "m", UID: "another"})
	write(protocol.Refused, protocol.Action{Kind: protocol.Renew, Name: "none", UID: joined.UID})
	write(protocol.Done, protocol.Action{
		Kind:    protocol.Renew,
		Name:    "m",
		UID:     joined.UID,
		Leaving: true,
		Plan:    plan,
		Warm:    protocol.Set{0, 0b101},
	})
	renewed := read("m")
	require.True(t, renewed.Leaving)
	require.False(t, renewed.Warm.Has(7))
	require.True(t, renewed.Warm.Has(8))
	require.True(t, renewed.Warm.Has(10))
	require.False(t, renewed.Warm.Has(16))
	require.Equal(t, plan, renewed.Plan)
	require.NotEqual(t, joined.Revision, renewed.Revision)
	write(protocol.Done, protocol.Action{Kind: protocol.Renew, Name: "m", UID: joined.UID})
	require.Empty(t, read("m").Plan)
	renewed = read("m")

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
		Token:    4,
	}
	write(protocol.Done, release)
	write(protocol.Refused, release)
	released := read("s")
	require.Empty(t, released.Holder)
	require.EqualValues(t, 4, released.Token)
	take.Revision, take.Token = taken.Revision, 5
	write(protocol.Refused, take)
	take.Revision = released.Revision
	write(protocol.Done, take)
	late := take
	late.UID, late.Revision = released.UID, read("s").Revision
	require.NoError(t, s.Delete(t.Context(), "s"))
	write(protocol.Refused, late)
	late.Kind = protocol.Release
	write(protocol.Refused, late)
	_, err = s.Read(t.Context(), "s")
	require.True(t, apierrors.IsNotFound(err), "a late update has created it: %v", err)

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

// testUIDs writes to a Lease as if it were another that had its name before.
func testUIDs(t *testing.T, config *rest.Config) {
	api, err := coordinationclient.NewForConfig(config)
	require.NoError(t, err)
	leases := api.Leases("default")
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "u"}},
		metav1.CreateOptions{})
	require.NoError(t, err)

	for media, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"metadata":{"uid":"another"}}`,
		types.StrategicMergePatchType: `{"metadata":{"uid":"another"}}`,
		types.JSONPatchType:           `[{"op":"replace","path":"/metadata/uid","value":"another"}]`,
	} {
		_, err = leases.Patch(t.Context(), "u", media, []byte(patch), metav1.PatchOptions{})
		require.True(t, apierrors.IsInvalid(err), "%s: %v", media, err)
		status := apierrors.APIStatus(nil)
		require.ErrorAs(t, err, &status)
		require.NotEmpty(t, status.Status().Details.Causes)
		require.Equal(t, "metadata.uid", status.Status().Details.Causes[0].Field)
		require.Contains(t, err.Error(), "field is immutable")
	}
	lease.UID = "another"
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
}
