// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// The cases are behaviors that the tests of Cluster API's clustercache prove (1
// to 39), and behaviors that its users asked for (40 to 57), in the terms of
// this package. The numbers serve for comparison. Cases that need no real
// server run in virtual time, against in-memory API servers or on the pure
// decision; cases that a real server decides run on real ones.
//
// Where this package deliberately differs, the comment at the case gives the
// difference and the reason, and the test asserts this package's behavior.

// lastCase is the number of the last case.
const lastCase = 57

// capiCase is a case, or the part of a case that needs no real server.
type capiCase struct {
	number  int
	promise string
	run     func(t *testing.T)
}

func virtualCases() []capiCase {
	return []capiCase{
		{7, "connecting twice is connecting once, without a request", caseEngageAgain},
		{8, "whatever was handed out fails at once when the cluster is lost, and says why", caseHandlesAfterDisconnect},
		{9, "a disengaged cluster leaves no informer, no connection and no request", caseDisengageStopsEverything},
		{10, "disconnecting twice changes nothing, and what was last known of the cluster stays",
			caseStatusSurvivesDisconnect},
		{11, "a 401 on a probe asks the resolver at once, and is no missed probe", caseUnauthorizedProbe},
		{12, "another bad answer to a probe is one missed probe", caseOneMissedProbe},
		{13, "the probe that reaches the threshold disconnects, and none before it", caseThreshold},
		{14, "a good answer starts the count of missed probes anew", caseSuccessResets},
		{15, "a cluster that is not connected is not probed", caseNoProbeWithoutConnection},
		{16, "a watch of a cluster that is not connected is held, and begins by itself", caseWatchBeforeConnect},
		{17, "a watch is recorded once", caseWatchRecorded},
		{18, "watching the same again adds a hold and no informer", caseWatchTwice},
		{22, "without a Secret the resolver is asked in even intervals, and nothing is dialled",
			caseMissingSecretIsAskedForEvenly},
		{23, "right after a failed attempt there is no other, unless the resolver has news", caseRetryIsRateLimited},
		{24, "the attempt after the wait connects, and the next probe is an interval away", caseRetryConnects},
		{25, "nothing that callers do brings a probe before its time, and life makes it later", caseNoEarlyProbe},
		{26, "a healthy cluster is probed once an interval and stays connected", caseHealthyIsProbed},
		{27,
			"a 401 that the resolver cannot mend disconnects at once, is retried within a second, and heals " +
				"without news", caseUnauthorizedDisconnects},
		{28, "a deleted cluster leaves nothing behind, and is told of", caseDeletedClusterIsForgotten},
		{29, "connect and disconnect of one cluster are one request in a queue", caseEventsAreDeduplicated},
		{32, "each of three sources gets one event of a connect", caseEachSourceIsTold},
		{33, "a source is told only of the trouble that it waits for", caseSourcesWaitForTheirTrouble},
		{34, "every change is told of once, with its reason, and no failure before it is one", caseChangesAreToldOnce},
		{35, "20 dead clusters among 100 disturb nobody", caseDeadAmongMany},
		{36, "the hub is the zero key and is never guessed from a Pod", caseHubIsNeverGuessed},
		{39, "a slow connect holds back neither another cluster nor a second caller", caseSlowConnectHoldsBackNobody},
		{45, "a handle kept across a disconnect fails, or says that its answer is old", caseHandleKeptAcrossDisconnect},
		{46, "a subscriber that never drains holds back nobody, and its end frees it", caseStuckSubscriber},
		{47, "callbacks may call everything for the same cluster", caseReentrance},
		{48, "a watch that never synced leaves no request and no goroutine, however often the cluster went",
			caseUnsyncedWatchLeavesNothing},
		{50, "a list that takes ten minutes occupies no worker and gets there", caseSlowList},
		{55, "a fleet that comes back lists within its budget", caseFleetComesBack},
		{57, "a removed cluster's metrics vanish, and Stop leaves no goroutine", caseRemovedAndStopped},
	}
}

func TestClusterAPICases(t *testing.T) {
	for _, c := range virtualCases() {
		t.Run(fmt.Sprintf("case %d: %s", c.number, c.promise), c.run)
	}
}

// decided are the cases that the pure state machine decides, and their tests.
var decided = map[int]string{
	30: "TestClusterAPICase30DueTimes",
	31: "TestClusterAPICase31EarliestDeadline",
}

// TestEveryClusterAPICaseIsThere: none of the cases 1 to 57 is missing, and
// none runs twice against the same kind of server.
func TestEveryClusterAPICaseIsThere(t *testing.T) {
	seen := map[int]bool{}
	last := 0
	for _, c := range virtualCases() {
		require.Greater(t, c.number, last, "cases in memory are in order")
		require.NotEmpty(t, c.promise)
		seen[c.number], last = true, c.number
	}
	last = 0
	for _, c := range realCases() {
		require.Greater(t, c.number, last, "real cases are in order")
		require.NotEmpty(t, c.promise)
		seen[c.number], last = true, c.number
	}
	text, err := os.ReadFile("../../clustercache/internal/phase/clusterapi_test.go")
	require.NoError(t, err)
	for number, test := range decided {
		require.Contains(t, string(text), "\nfunc "+test+"(")
		require.False(t, seen[number])
		seen[number] = true
	}
	for n := 1; n <= lastCase; n++ {
		require.True(t, seen[n], "case %d is missing", n)
	}
	require.Len(t, seen, lastCase)
}

// realCase is a case, or the part of a case, that a real server decides.
type realCase struct {
	number  int
	promise string
	run     func(t *testing.T, s *site)
}

func realCases() []realCase {
	return []realCase{
		{1, "a missing Secret is named, and the cluster waits for it", caseMissingSecretIsNamed},
		{2, "a client of a cluster that was never connected says so at once", caseNeverConnected},
		{3, "a wrong path in the URL is not reachable", caseWrongPath},
		{4, "a corrected Secret connects and wipes the failure", caseCorrectedSecret},
		{5, "a watch is synced within its time", caseSynced},
		{6, "cached and uncached reads answer", caseCachedAndUncachedReads},
		{19, "managedFields are in the cache as in live reads, unless they are dropped, and a transform is applied",
			caseManagedFields},
		{20, "a cluster that is not ready is not dialled until it is", caseNotReadyYet},
		{21, "a cluster outside of the selection is ignored until it is in", caseSelection},
		{27, "a revoked token disconnects, keeps the holds, and heals with the next one", caseRevokedToken},
		{28, "a deleted Cluster object is the end of the cluster", caseDeletedClusterObject},
		{37, "a change is told of once, however often the kind is watched", caseOneEventForTwoWatches},
		{38, "a cluster that does not answer is given up after its failures, and a healthy one never", caseUnroutable},
		{40, "the Secrets of other clusters are never read, and no probe is sent to them",
			caseOthersSecretsAreNeverRead},
		{41, "an endpoint that changes in the Secret is used while the old one still answers", caseEndpointChanges},
		{42, "a new token alone causes no list, no event and no gap", caseOnlyTheTokenChanges},
		{43, "a token that expired first is replaced right when the Secret is", caseTokenExpiresFirst},
		{44, "after a reconnect handlers get what changed, and nothing twice", caseReconnectKeepsHandlers},
		{48, "after a disconnect nothing is sent to the old endpoint, not even for a missing kind",
			caseOldEndpointIsLeftAlone},
		{49, "another cluster of the same name ends the old connection", caseRecreatedCluster},
		{51, "a kind that one cluster lacks keeps that cluster from nothing else", caseOptionalKind},
		{52, "exec, auth-provider, token and certificate files are refused unless allowed", caseFilesAndPlugins},
		{53, "credentials without rights on the probe's path connect", caseProbePathForbidden},
		{54, "a watch that is refused is reported of its informer, while probes are fine", caseRefusedWatch},
		{55, "the rate of requests is one bucket for all kinds", caseOneBucketForAllKinds},
		{56, "a disconnect closes connections, and a reconnect dials anew", caseFreshDial},
	}
}

// TestRealClusterAPICases runs on two real clusters that the cases share; each
// has its own namespace, credentials, proxies and ClusterCache.
func TestRealClusterAPICases(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 2, testenv.WithNames("hub", "remote"),
		testenv.WithCRDs(testenv.SimpleCRD("cluster.x-k8s.io", "Cluster")))
	for _, c := range realCases() {
		t.Run(fmt.Sprintf("case %d: %s", c.number, c.promise), func(t *testing.T) {
			t.Parallel()
			c.run(t, newSite(t, envs[0], envs[1], c.number))
		})
	}
}
