// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// network is that of a replica. Once it is cut, nothing arrives any more.
type network struct {
	next http.RoundTripper
	cut  atomic.Bool
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.cut.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return n.next.RoundTrip(r)
}

// runReplica runs a replica of the hub's group until the test ends.
func runReplica(t *testing.T, hub *fleettest.API, identity string, standbys int) (*sharding.Sharding, *network) {
	t.Helper()
	config, n := hub.Config(), &network{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		n.next = next
		return n
	})
	s, err := sharding.New(config, sharding.Options{
		Namespace: "default",
		Name:      "operator",
		Identity:  identity,
		Slots:     8,
		Standbys:  standbys,
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; !n.cut.Load() {
			require.NoError(t, err)
		}
	})
	return s, n
}

// TestDebugPageSaysWhoOwnsAClusterSinceWhenAndWhyNot has a replica that is
// killed, and a hub that goes away.
func TestDebugPageSaysWhoOwnsAClusterSinceWhenAndWhyNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := fleettest.NewAPI(t, "uid-hub")
		d := fleettest.NewDirectory()
		east, west := fleettest.Key("east"), fleettest.Key("west")
		share, _ := runReplica(t, hub, "operator-0", 1)
		other, network := runReplica(t, hub, "operator-1", 1)
		other.SetClusters([]client.ObjectKey{east, west})
		d.Set(east, fleettest.NewAPI(t, "uid-east").Config())
		d.Set(west, fleettest.NewAPI(t, "uid-west").Config())
		o := fleettest.Silent(d)
		o.Discover, o.Sharding = true, share
		page := fleettest.Start(t, o).DebugHandler()
		time.Sleep(time.Minute)

		owners := map[bool]string{share.Owns(east): "fleet/east", share.Owns(west): "fleet/west"}
		require.Len(t, owners, 2, "one each")
		overview := browse(t, page, "", http.StatusOK)
		contains(t, overview, "Replicas <span class=\"dim\">2</span>",
			`<td class="key"><a href="?q=operator-0">operator-0</a></td><td class="state Ready">active</td>`,
			"owns 1, stands by for 1", "<td>operator-0, for 5", "<td>operator-1, for 5")
		require.NotContains(t, overview, "no owner")
		require.Contains(t, browse(t, page, "q=operator-1", http.StatusOK), owners[false])
		require.NotContains(t, browse(t, page, "q=operator-1", http.StatusOK), owners[true])
		contains(t, browse(t, page, "cluster="+owners[false], http.StatusOK),
			"<dt>Owner</dt><dd>operator-1, for 5", ", token ", "<dt>Standbys</dt><dd>operator-0")

		network.cut.Store(true)
		time.Sleep(12 * time.Second)
		overview = browse(t, page, "", http.StatusOK)
		contains(t, overview, `<a href="?q=no+owner">1 cluster without an owner</a>`,
			`<td class="state impaired">silent</td>`, `<b class="Disconnected">no owner, for `,
			`<b class="Disconnected">no owner</b>: operator-1 has it, and has not renewed its Lease for 1`,
			"; others take over after 15s")
		require.Regexp(t, `(?s)`+owners[false]+`.*`+owners[true], overview, "the worst first")
		require.NotContains(t, browse(t, page, "q=no+owner", http.StatusOK), owners[true])
		require.Contains(t, browse(t, page, "q=no+owner", http.StatusOK), owners[false])
		time.Sleep(10 * time.Second)
		contains(t, browse(t, page, "cluster="+owners[false], http.StatusOK), "<dt>Owner</dt><dd>operator-0, for ",
			", token 2")

		hub.Die()
		time.Sleep(20 * time.Second)
		contains(t, browse(t, page, "", http.StatusOK), "this replica has not reached the hub for 2",
			`<a href="?q=no+owner">2 clusters without an owner</a>`, "unknown: this replica")
		var seen struct{ Group *ownership.Group }
		require.NoError(t, json.Unmarshal([]byte(browse(t, page, "format=json", http.StatusOK)), &seen))
		require.Len(t, seen.Group.Slots, 8)
		require.Contains(t, seen.Group.Trouble, "has not reached the hub")
		require.NoError(t, json.Unmarshal(
			[]byte(browse(t, page, "format=json&cluster=fleet/east", http.StatusOK)), &seen))
		require.Len(t, seen.Group.Slots, 1)
		require.Equal(t, share.Slot(east), seen.Group.Slots[0].Slot)
		hub.Live()
	})
}

// TestDebugPageSaysWhoOwnsClustersOfOtherReplicas has no standbys: this replica
// has no status of what the other one owns.
func TestDebugPageSaysWhoOwnsClustersOfOtherReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := fleettest.NewAPI(t, "uid-hub")
		share, _ := runReplica(t, hub, "operator-0", 0)
		other, network := runReplica(t, hub, "operator-1", 0)
		d := fleettest.NewDirectory()
		var keys []client.ObjectKey
		for _, name := range []string{"east", "north", "south", "west"} {
			key := fleettest.Key(name)
			d.Set(key, fleettest.NewAPI(t, "uid-"+name).Config())
			keys = append(keys, key)
		}
		other.SetClusters(keys)
		o := fleettest.Silent(d)
		o.Discover, o.Sharding = true, share
		page := fleettest.Start(t, o).DebugHandler()
		time.Sleep(time.Minute)
		theirs := slices.IndexFunc(keys, other.Owns)
		ours := slices.IndexFunc(keys, share.Owns)
		require.NotEqual(t, -1, theirs)
		require.NotEqual(t, -1, ours)
		row := `<td class="key">` + keys[theirs].String() + `</td><td class="state">`

		contains(t, browse(t, page, "", http.StatusOK), "Clusters of other replicas", row+"operator-1, for 5")
		require.Contains(t, browse(t, page, "q=operator-1", http.StatusOK), row)
		require.NotContains(t, browse(t, page, "q=operator-0", http.StatusOK), row)
		require.NotContains(t, browse(t, page, "phase=Ready", http.StatusOK), row)
		var seen struct {
			Elsewhere []struct {
				Cluster client.ObjectKey
				ownership.Holding
			}
		}
		found := browse(t, page, "format=json&q="+keys[theirs].Name, http.StatusOK)
		require.NoError(t, json.Unmarshal([]byte(found), &seen))
		require.Len(t, seen.Elsewhere, 1)
		require.Equal(t, keys[theirs], seen.Elsewhere[0].Cluster)
		require.Equal(t, "operator-1", seen.Elsewhere[0].Owner)
		require.Equal(t, share.Slot(keys[theirs]), seen.Elsewhere[0].Slot)

		network.cut.Store(true)
		time.Sleep(12 * time.Second)
		contains(t, browse(t, page, "q=no+owner", http.StatusOK), row+`<b class="Disconnected">no owner, for `,
			`<td class="text">operator-1 has it, and has not renewed its Lease for 1`)
		require.NotContains(t, browse(t, page, "q=no+owner", http.StatusOK), keys[ours].String())
	})
}

// TestDebugPageWithoutAGroupHasNoOwners: nothing is shown that is not known.
func TestDebugPageWithoutAGroupHasNoOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		share := clustercachetest.NewSharding()
		fleet := clustercachetest.New(t, clustercachetest.Options{Cache: clustercache.Options{Sharding: share}})
		share.Gain(fleet.Add("east").Key())
		page := fleet.ClusterCache().DebugHandler()
		time.Sleep(10 * time.Second)
		overview := browse(t, page, "", http.StatusOK)
		require.Contains(t, overview, "<th>Ownership</th>")
		require.NotContains(t, overview, "<th>Owner</th>")
		require.NotContains(t, overview, "Replicas")
		require.NotContains(t, browse(t, page, "format=json", http.StatusOK), `"group"`)
	})
}
