// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// TestHazardInformerIsLeftInAnEarlierHistory: a resource goes back while its
// informers list, so that what one of them has found reaches another one too
// early, or too late. All of them have to show the same history in the end: one
// that shows an earlier one answers no reads, and has no reason to list.
func TestHazardInformerIsLeftInAnEarlierHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePool(t)
		var informers []*informer
		for _, name := range []string{"default", "kube-system"} {
			l, err := p.Acquire(t.Context(), Key{
				Resource:      schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
				LabelSelector: "kubernetes.io/metadata.name=" + name,
			})
			require.NoError(t, err)
			require.NoError(t, l.WaitForSync(t.Context()))
			informers = append(informers, l.at.informer())
		}
		a, b := informers[0], informers[1]
		requireHistory := func(number int) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, i := range informers {
				require.Equal(t, number, i.relation().era().number, i.key)
				require.NoError(t, i.distrustLocked(time.Minute))
			}
		}
		first := a.relation().era()
		requireHistory(0)

		a.distrust(&elsewhereError{a.key, first, ErrHistory}) // b had not listed yet
		requireHistory(1)
		b.distrust(&elsewhereError{b.key, first, ErrHistory}) // it has listed since
		requireHistory(1)

		second := a.relation().era()
		_, entered := a.siblings.number(second.epoch, true, second.number)
		require.True(t, entered) // before the lists of both had ended
		for _, i := range informers {
			i.siblings.relistEarlier(i, false)
		}
		requireHistory(2)
	})
}

// newFakePool returns a pool on a fake API server, which is closed at the end of
// the test.
func newFakePool(t *testing.T) *Pool {
	t.Helper()
	server := fakeapi.New(fakeapi.Options{Identity: "one"})
	client := &http.Client{Transport: server.Transport()}
	p, err := New(Options{Source: FromREST(func(context.Context, types.NamespacedName) (Endpoint, error) {
		return Endpoint{Client: client, URL: "http://fake"}, nil
	})})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

// acquireNamespaces returns a lease on the namespaces with a label.
func acquireNamespaces(t *testing.T, p *Pool, label string) *Lease {
	t.Helper()
	l, err := p.Acquire(t.Context(), Key{
		Resource:      schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		LabelSelector: label,
	})
	require.NoError(t, err)
	require.NoError(t, l.WaitForSync(t.Context()))
	return l
}

// TestHazardContinuedInformerIsLeftInAnEarlierHistory: a history was entered, and
// those that show the earlier one are about to be told, when one of them is
// continued by another one.
func TestHazardContinuedInformerIsLeftInAnEarlierHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePool(t)
		wide := acquireNamespaces(t, p, "")
		rider := acquireNamespaces(t, p, "kubernetes.io/metadata.name=default")
		require.Same(t, wide.at.informer(), rider.at.informer())
		first := wide.at.informer().relation().era()
		_, entered := wide.at.informer().siblings.number(first.epoch, true, first.number)
		require.True(t, entered)
		wide.ReleaseNow()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NotEqual(t, wide.Key(), rider.ServedBy())
		require.Equal(t, first.number+1, rider.at.informer().relation().era().number)
		require.NoError(t, rider.Trust(time.Minute))
	})
}

// TestHazardFindingIsLostToADoubt: an informer whose history was found to be over
// is asked to list for a lesser reason before it has heeded that.
func TestHazardFindingIsLostToADoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePool(t)
		i := acquireNamespaces(t, p, "").at.informer()
		first := i.relation().era()
		i.interrupt(errAudited, func() { // as distrust and doubtful do, one right after the other
			i.mu.doubt, i.mu.attempt.finding = ErrHistory, ErrHistory
			i.mu.attempt.doubt(errLacked)
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, first.number+1, i.relation().era().number)
		require.NoError(t, i.distrustLocked(time.Minute))
	})
}
