// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/remote"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-of-it"}}
}

// site is a fleet of two clusters, and a recorder.
type site struct {
	fleet      *clustercachetest.Fleet
	east, west *clustercachetest.Cluster
	recorder   *remote.Recorder
	stop       func()
}

// recording runs a test in a bubble. The recorder is started, unless the test
// does that.
func recording(t *testing.T, o remote.RecorderOptions, started bool, test func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{fleet: clustercachetest.New(t, clustercachetest.Options{})}
		s.east, s.west = s.fleet.Add("fleet/east"), s.fleet.Add("fleet/west")
		cc := s.fleet.ClusterCache()
		s.fleet.WaitSynced()
		o.Controller = "example.com/rollout"
		var err error
		s.recorder, err = remote.NewRecorder(cc, o)
		require.NoError(t, err)
		if started {
			s.start(t)
		}
		test(t, s)
	})
}

func (s *site) start(t *testing.T) {
	s.stop = fleettest.Run(t, s.recorder)
	synctest.Wait()
}

// note records a Warning in a cluster, about an object named like the note:
// each note has a series of its own.
func (s *site) note(c *clustercachetest.Cluster, note string) {
	s.recorder.For(c.Key()).Eventf(configMap(note), nil, corev1.EventTypeWarning, "Failed", "Deploy", note)
}

// eventsIn returns the events of a cluster as "note xcount", sorted.
func eventsIn(t *testing.T, c client.Reader) []string {
	t.Helper()
	list := &eventsv1.EventList{}
	require.NoError(t, c.List(t.Context(), list))
	found := []string{}
	for _, e := range list.Items {
		count := int32(1)
		if e.Series != nil {
			count = e.Series.Count
		}
		found = append(found, fmt.Sprintf("%s x%d", e.Note, count))
	}
	slices.Sort(found)
	return found
}

// results are the values of the recorder's counter.
func (s *site) results(t *testing.T) map[string]int {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.recorder)
	families, err := registry.Gather()
	require.NoError(t, err)
	found := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			found[m.GetLabel()[0].GetValue()] = int(m.GetCounter().GetValue())
		}
	}
	return found
}

func TestEventIsWrittenIntoTheClusterOfItsObject(t *testing.T) {
	recording(t, remote.RecorderOptions{Instance: "replica-1"}, true, func(t *testing.T, s *site) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n"}}
		s.recorder.For(s.east.Key()).Eventf(configMap("one"), node, corev1.EventTypeNormal, "Deployed", "",
			"version %d", 3)
		s.recorder.For(s.west.Key()).Eventf(node, nil, corev1.EventTypeWarning, strings.Repeat("r", 200), "Look",
			"%s", strings.Repeat("é", 1000))
		synctest.Wait()

		list := &eventsv1.EventList{}
		require.NoError(t, s.east.Client().List(t.Context(), list))
		require.Len(t, list.Items, 1)
		e := list.Items[0]
		require.Equal(t, "default", e.Namespace)
		require.True(t, strings.HasPrefix(e.Name, "one-"), e.Name)
		require.Equal(t, corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "one",
			UID: "uid-of-it"}, e.Regarding)
		require.Equal(t, "node-1", e.Related.Name)
		require.Equal(t, []string{"Normal", "Deployed", "Deployed", "version 3", "example.com/rollout", "replica-1"},
			[]string{e.Type, e.Reason, e.Action, e.Note, e.ReportingController, e.ReportingInstance})
		require.WithinDuration(t, time.Now(), e.EventTime.Time, time.Second)
		require.Nil(t, e.Series)

		require.NoError(t, s.west.Client().List(t.Context(), list))
		require.Len(t, list.Items, 1)
		e = list.Items[0]
		require.Equal(t, "default", e.Namespace, "that of objects without one")
		require.Equal(t, strings.Repeat("é", 512), e.Note, "the limit of an API server")
		require.Len(t, e.Reason, 128)
	})
}

// TestEqualEventsAreOneSeries: the first is written at once, and then the count
// at most once a minute, with the next of them.
func TestEqualEventsAreOneSeries(t *testing.T) {
	recording(t, remote.RecorderOptions{}, true, func(t *testing.T, s *site) {
		settle := func() { // a write may open a connection, which takes its time
			time.Sleep(time.Second)
			synctest.Wait()
		}
		for range 10 {
			s.note(s.east, "again")
			settle()
		}
		s.note(s.east, "other")
		settle()
		require.Equal(t, []string{"again x1", "other x1"}, eventsIn(t, s.east.Client()))
		time.Sleep(time.Minute)
		s.note(s.east, "again")
		settle()
		require.Equal(t, []string{"again x11", "other x1"}, eventsIn(t, s.east.Client()))
		require.Equal(t, map[string]int{"written": 3, "counted": 9}, s.results(t))

		// The event has expired meanwhile.
		require.NoError(t, s.east.Client().DeleteAllOf(t.Context(), &eventsv1.Event{}, client.InNamespace("default")))
		time.Sleep(time.Minute)
		s.note(s.east, "again")
		settle()
		require.Equal(t, []string{"again x12"}, eventsIn(t, s.east.Client()))
		time.Sleep(7 * time.Minute)
		s.note(s.east, "again")
		settle()
		require.Equal(t, []string{"again x1", "again x12"}, eventsIn(t, s.east.Client()), "the series has ended")
	})
}

// TestEventsOfAClusterThatIsAwayAreDropped, at once, and leave nothing behind.
func TestEventsOfAClusterThatIsAwayAreDropped(t *testing.T) {
	recording(t, remote.RecorderOptions{}, true, func(t *testing.T, s *site) {
		s.east.Disconnect()
		s.fleet.WaitSynced()
		for i := range 10 {
			s.note(s.east, fmt.Sprint(i))
		}
		s.recorder.For(client.ObjectKey{Name: "unknown"}).
			Eventf(configMap("one"), nil, corev1.EventTypeNormal, "R", "A", "n")
		s.note(s.west, "there")
		synctest.Wait()
		require.Equal(t, map[string]int{"away": 11, "written": 1}, s.results(t))
		require.Equal(t, []string{"there x1"}, eventsIn(t, s.west.Client()))

		s.east.Connect()
		s.fleet.WaitSynced()
		s.note(s.east, "1")
		synctest.Wait()
		require.Equal(t, []string{"1 x2"}, eventsIn(t, s.east.Client()))
	})
}

// TestClusterThatHangsHoldsBackNoOther, nor more than its share.
func TestClusterThatHangsHoldsBackNoOther(t *testing.T) {
	recording(t, remote.RecorderOptions{Waiting: 8, Concurrency: 1}, true, func(t *testing.T, s *site) {
		s.east.Hang()
		for i := range 20 {
			s.note(s.east, fmt.Sprint(i))
			synctest.Wait()
		}
		s.note(s.west, "there")
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"there x1"}, eventsIn(t, s.west.Client()))
		require.Equal(t, 11, s.results(t)["full"], "one is under way, eight wait")
		time.Sleep(time.Minute)
		require.Equal(t, map[string]int{"full": 11, "away": 9, "written": 1}, s.results(t))
	})
}

// TestEventsThatAreRefusedAreCounted, and do not keep others.
func TestEventsThatAreRefusedAreCounted(t *testing.T) {
	recording(t, remote.RecorderOptions{}, true, func(t *testing.T, s *site) {
		heal := s.east.Fail(clustercachetest.Status(403), clustercachetest.Resource("events"))
		s.note(s.east, "1")
		synctest.Wait()
		heal()
		s.note(s.east, "2")
		s.recorder.For(s.east.Key()).Eventf(nil, nil, corev1.EventTypeNormal, "R", "A", "n")
		s.recorder.For(s.east.Key()).Eventf(configMap("one"), nil, "Fine", "R", "A", "n")
		s.recorder.For(s.east.Key()).Eventf(configMap("one"), nil, corev1.EventTypeNormal, "", "A", "n")
		synctest.Wait()
		require.Equal(t, map[string]int{"failed": 1, "written": 1, "invalid": 3}, s.results(t))
		require.Equal(t, []string{"2 x1"}, eventsIn(t, s.east.Client()))
	})
}

// TestEventsWaitForTheStart, and are dropped at the end.
func TestEventsWaitForTheStart(t *testing.T) {
	recording(t, remote.RecorderOptions{Waiting: 2}, false, func(t *testing.T, s *site) {
		for i := range 3 {
			s.note(s.east, fmt.Sprint(i))
		}
		synctest.Wait()
		require.Empty(t, eventsIn(t, s.east.Client()))
		require.False(t, s.recorder.NeedLeaderElection())
		s.start(t)
		synctest.Wait()
		require.Equal(t, []string{"0 x1", "1 x1"}, eventsIn(t, s.east.Client()))

		s.east.Hang()
		for i := range 3 {
			s.note(s.east, fmt.Sprint("late ", i))
		}
		synctest.Wait()
		began := time.Now()
		s.stop()
		require.Zero(t, time.Since(began))
		s.note(s.west, "after")
		synctest.Wait()
		require.Empty(t, eventsIn(t, s.west.Client()))
		found := s.results(t)
		require.Equal(t, 1+3+1, found["full"]+found["away"]+found["stopped"])
	})
}

// TestAnyNumberOfEventsMayWait: the largest number is no overflow.
func TestAnyNumberOfEventsMayWait(t *testing.T) {
	recording(t, remote.RecorderOptions{Waiting: math.MaxInt}, true, func(t *testing.T, s *site) {
		s.note(s.east, "1")
		synctest.Wait()
		require.Equal(t, []string{"1 x1"}, eventsIn(t, s.east.Client()))
	})
}

// TestHazardEventsFloodACluster: what one reconciler records in a loop becomes
// one Event, or a few, in the cluster, as with client-go.
func TestHazardEventsFloodACluster(t *testing.T) {
	recording(t, remote.RecorderOptions{Waiting: 2000}, true, func(t *testing.T, s *site) {
		attempt := func(i int) {
			s.recorder.For(s.east.Key()).Eventf(configMap("one"), nil, corev1.EventTypeWarning, "Failed", "Deploy",
				"attempt %d failed", i)
		}
		for i := range 1000 {
			attempt(i)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		attempt(1000)
		time.Sleep(time.Second)
		require.Equal(t, []string{"attempt 0 failed x1001"}, eventsIn(t, s.east.Client()))

		about := func(c *clustercachetest.Cluster, name string, reason int) {
			s.recorder.For(c.Key()).Eventf(configMap(name), nil, corev1.EventTypeWarning, fmt.Sprintf("R%d", reason),
				"Deploy", "failed")
		}
		for i := range 100 {
			about(s.west, "one", i)
		}
		about(s.west, "two", 0)
		time.Sleep(time.Second)
		require.Len(t, eventsIn(t, s.west.Client()), 25+1)
		require.Equal(t, 75, s.results(t)["limited"])
		time.Sleep(5 * time.Minute)
		about(s.west, "one", 100)
		about(s.west, "one", 101)
		time.Sleep(time.Second)
		require.Len(t, eventsIn(t, s.west.Client()), 25+1+1)
	})
}

// TestMemoryOfSeriesIsBounded: beyond the bound, a series begins anew.
func TestMemoryOfSeriesIsBounded(t *testing.T) {
	recording(t, remote.RecorderOptions{Waiting: 2000}, true, func(t *testing.T, s *site) {
		for i := range 1025 {
			s.note(s.east, fmt.Sprint(i))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		s.note(s.east, "0")
		s.note(s.east, "1024")
		time.Sleep(time.Minute)
		all := eventsIn(t, s.east.Client())
		require.Len(t, all, 1026)
		require.Contains(t, all, "1024 x2")
		require.NotContains(t, all, "0 x2")
	})
}

func TestRecorderOptionsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc := clustercachetest.New(t, clustercachetest.Options{}).ClusterCache()
		_, err := remote.NewRecorder(cc, remote.RecorderOptions{
			Controller: "not a name", Instance: strings.Repeat("i", 129), Waiting: -1, Concurrency: -1, Timeout: 1})
		for _, field := range []string{"Controller", "Instance", "Waiting", "Concurrency", "Timeout"} {
			require.ErrorContains(t, err, "RecorderOptions."+field)
		}
		option := &clustercache.OptionError{}
		require.ErrorAs(t, err, &option)
		r, err := remote.NewRecorder(cc, remote.RecorderOptions{Controller: "example.com/a"})
		require.NoError(t, err)
		problems, err := testutil.CollectAndLint(r)
		require.NoError(t, err)
		require.Empty(t, problems)
	})
}
