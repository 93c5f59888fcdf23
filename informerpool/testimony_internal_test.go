// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestHazardTestimonyConfirmsWhatItDoesNotShow: a question was sent ten seconds
// after a start, and was answered at once.
func TestHazardTestimonyConfirmsWhatItDoesNotShow(t *testing.T) {
	start := time.Now()
	after := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	sent, soon := after(10), after(11)
	ask := func(st *testimony, epoch Epoch, at time.Time) *inquiry {
		_, _, mine := st.look(claim{epoch: epoch, version: "9999", ended: after(0)}, at, false)
		return mine
	}
	for name, row := range map[string]struct {
		answer   string // instead of 900
		claim    claim
		now      time.Time // instead of soon
		failed   time.Time // when the last request of an attempt was sent that has failed
		then     func(*testimony)
		confirms bool
	}{
		"a version before it":           {claim: claim{"a", "99", after(9)}, confirms: true},
		"its version":                   {claim: claim{"a", "900", after(9)}, confirms: true},
		"a version after it":            {claim: claim{"a", "901", after(9)}},
		"a longer version":              {claim: claim{"a", "1000", after(9)}},
		"a version that is no number":   {claim: claim{"a", "odd", after(9)}},
		"an answer that is no number":   {answer: "odd", claim: claim{"a", "odd", after(9)}},
		"no answer":                     {answer: "none", claim: claim{"a", "99", after(9)}},
		"another epoch":                 {claim: claim{"b", "99", after(9)}},
		"a stream that ended with it":   {claim: claim{"a", "99", sent}},
		"a stream that ended after it":  {claim: claim{"a", "99", after(10.5)}},
		"nearly too late":               {claim: claim{"a", "99", after(9)}, now: after(14.9), confirms: true},
		"too late":                      {claim: claim{"a", "99", after(9)}, now: sent.Add(testimonyAge)},
		"an attempt from before failed": {claim: claim{"a", "99", after(9)}, failed: after(9), confirms: true},
		"an attempt since then failed":  {claim: claim{"a", "99", after(9)}, failed: after(10.5)},
		"one that asked with it failed": {claim: claim{"a", "99", after(9)}, failed: sent},
		"one from before failed later": {
			claim: claim{"a", "99", after(9)}, failed: after(10.5),
			then: func(st *testimony) { st.ended(after(9)) },
		},
		"a later answer": {claim: claim{"a", "950", after(9)}, then: func(st *testimony) {
			st.conclude(ask(st, "a", soon), "960")
		}, confirms: true},
		"a later answer that went back": {claim: claim{"a", "850", after(9)}, then: func(st *testimony) {
			st.conclude(ask(st, "a", soon), "800")
		}},
		"a later answer of another epoch": {claim: claim{"a", "850", after(9)}, then: func(st *testimony) {
			st.conclude(ask(st, "b", soon), "9000")
		}},
		"an earlier answer that was late": {claim: claim{"a", "950", after(9)}, then: func(st *testimony) {
			st.conclude(&inquiry{epoch: "a", sent: after(9.5), done: make(chan struct{})}, "960")
		}},
		"a later question without an answer": {claim: claim{"a", "850", after(9)}, then: func(st *testimony) {
			st.conclude(ask(st, "a", soon), "")
		}, confirms: true},
	} {
		t.Run(name, func(t *testing.T) {
			st, answer, now := &testimony{}, cmp.Or(row.answer, "900"), row.now
			if now.IsZero() {
				now = soon
			}
			st.conclude(ask(st, "a", sent), strings.TrimSuffix(answer, "none"))
			st.ended(row.failed)
			if row.then != nil {
				row.then(st)
			}
			confirms, pending, mine := st.look(row.claim, now, true)
			require.Nil(t, pending, "no question is under way")
			require.Equal(t, row.confirms, confirms != nil)
			require.Equal(t, row.confirms, mine == nil)
		})
	}
}

// TestHazardMachineSleepsAfterATestimony: the monotonic clock stands still then,
// and the storage may have been restored meanwhile.
func TestHazardMachineSleepsAfterATestimony(t *testing.T) {
	start := time.Now()
	slept := time.Now().Add(time.Second)
	*(*uint64)(unsafe.Pointer(&slept)) += 3600 << 30 //nolint:gosec // the seconds of its wall clock alone
	require.Less(t, slept.Sub(start), 2*time.Second)
	require.Greater(t, slept.Round(0).Sub(start.Round(0)), time.Hour)

	var st testimony
	c := claim{"a", "850", start.Add(-time.Second)}
	_, _, mine := st.look(c, start, true)
	_, pending, _ := st.look(c, slept.Add(-900*time.Millisecond), true)
	require.Nil(t, pending, "the answer may be from before the sleep")
	st.conclude(mine, "900")
	confirms, _, _ := st.look(c, start.Add(time.Second), false)
	require.NotNil(t, confirms)
	confirms, _, _ = st.look(c, slept, false)
	require.Nil(t, confirms)
}

// TestWhoWaitsForATestimony: a question was sent ten seconds after a start, and
// is under way.
func TestWhoWaitsForATestimony(t *testing.T) {
	start := time.Now()
	after := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	for name, row := range map[string]struct {
		claim     claim
		now       time.Time
		impatient bool
		failed    time.Time // when the last request of a failed attempt was sent
		waits     bool
	}{
		"one whose stream ended before":  {claim: claim{"a", "99", after(9)}, now: after(10), waits: true},
		"one that has waited":            {claim: claim{"a", "99", after(9)}, now: after(10), impatient: true},
		"one whose stream ended since":   {claim: claim{"a", "99", after(10.1)}, now: after(10.2)},
		"one of another epoch":           {claim: claim{"b", "99", after(9)}, now: after(10)},
		"one that finds it slow":         {claim: claim{"a", "99", after(9)}, now: after(11)},
		"one whose sibling failed since": {claim: claim{"a", "99", after(9)}, now: after(10.2), failed: after(10.1)},
	} {
		t.Run(name, func(t *testing.T) {
			st := &testimony{}
			_, _, first := st.look(claim{"a", "900", after(9)}, after(10), true)
			st.ended(row.failed)
			_, pending, mine := st.look(row.claim, row.now, !row.impatient)
			if row.waits {
				require.Same(t, first, pending)
				return
			}
			require.NotNil(t, mine)
			_, pending, _ = st.look(claim{row.claim.epoch, "99", row.now.Add(-1)}, row.now, true)
			require.Same(t, mine, pending, "others wait for the newest question")
			st.conclude(first, "")
			_, pending, _ = st.look(claim{row.claim.epoch, "980", row.now.Add(-1)}, row.now, true)
			require.Same(t, mine, pending, "whatever becomes of the earlier one")
		})
	}
}

// consulting has informers that resume consult a testimony at one moment, and
// returns how many of them asked. ask is called by each that is to.
func consulting(informers int, ask func(context.Context, *testimony, *inquiry)) (asked int) {
	var st testimony
	var count atomic.Int64
	var group sync.WaitGroup
	ended := time.Now()
	time.Sleep(time.Millisecond)
	for range informers {
		group.Go(func() {
			ctx := context.Background()
			if confirms, mine := st.consult(ctx, claim{"a", "850", ended}); confirms == nil {
				count.Add(1)
				ask(ctx, &st, mine)
			}
		})
	}
	group.Wait()
	return int(count.Load())
}

func TestInformersRelyOnOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.Equal(t, 1, consulting(1700, func(_ context.Context, st *testimony, q *inquiry) {
			time.Sleep(100 * time.Millisecond)
			st.conclude(q, "900")
		}))
		require.Less(t, time.Since(began), 110*time.Millisecond)
	})
}

// TestHazardHungQuestionDelaysOthers: the first one asks a server that does not
// answer. None of the others waits for it for long.
func TestHazardHungQuestionDelaysOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var hung sync.Once
		consulting(6, func(_ context.Context, st *testimony, q *inquiry) {
			hangs := false
			hung.Do(func() { hangs = true })
			if hangs {
				time.Sleep(time.Hour)
			}
			require.True(t, hangs || time.Since(began) < testimonyWait+10*time.Millisecond)
			st.conclude(q, "900")
		})
	})
}

// TestHazardFailedQuestionFailsOthers: the failure is not theirs. One after the
// other asks, for as long as they wait at all.
func TestHazardFailedQuestionFailsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var failures atomic.Int64
		require.Equal(t, 4, consulting(100, func(_ context.Context, st *testimony, q *inquiry) {
			time.Sleep(100 * time.Millisecond)
			if failures.Add(1) <= 3 {
				st.conclude(q, "")
			} else {
				st.conclude(q, "900")
			}
		}))
		require.Less(t, time.Since(began), 410*time.Millisecond)

		began = time.Now()
		require.Equal(t, 100, consulting(100, func(_ context.Context, st *testimony, q *inquiry) {
			time.Sleep(400 * time.Millisecond)
			st.conclude(q, "")
		}))
		require.Less(t, time.Since(began), testimonyWait+410*time.Millisecond)
	})
}

// TestHazardLowerAnswerFailsOthers: the store is behind most informers. Each
// finds that out for itself, and all of them at once: one after the other would
// hold the places that the requests of a busy server have.
func TestHazardLowerAnswerFailsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.Equal(t, 1700, consulting(1700, func(_ context.Context, st *testimony, q *inquiry) {
			time.Sleep(10 * time.Millisecond)
			st.conclude(q, "800")
		}))
		require.Less(t, time.Since(began), 30*time.Millisecond)
	})
}

// TestCanceledInformerDoesNotWait, and leaves the question to the others.
func TestCanceledInformerDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var st testimony
		ended := time.Now()
		time.Sleep(time.Millisecond)
		_, mine := st.consult(t.Context(), claim{"a", "850", ended})
		require.NotNil(t, mine)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		began := time.Now()
		confirms, _ := st.consult(ctx, claim{"a", "850", ended})
		require.Nil(t, confirms)
		require.Equal(t, time.Millisecond, time.Since(began))
	})
}

// TestStoragesApart: what Kubernetes' own API servers serve shares a storage,
// except for events.
func TestStoragesApart(t *testing.T) {
	for _, shared := range []string{
		"pods", "deployments.apps", "jobs.batch", "leases.coordination.k8s.io",
		"customresourcedefinitions.apiextensions.k8s.io", "roles.rbac.authorization.k8s.io",
	} {
		require.False(t, storedApart(schema.ParseGroupResource(shared)), shared)
	}
	for _, apart := range []string{
		"events", "events.events.k8s.io", "widgets.example.com", "pods.metrics.k8s.io",
		"machines.cluster.x-k8s.io", "serviceinstances.servicecatalog.k8s.io", // once an API server of its own
	} {
		require.True(t, storedApart(schema.ParseGroupResource(apart)), apart)
	}
}
