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
		server := fakeapi.New(fakeapi.Options{Identity: "one"})
		client := &http.Client{Transport: server.Transport()}
		p, err := New(Options{Source: FromREST(func(context.Context, types.NamespacedName) (Endpoint, error) {
			return Endpoint{Client: client, URL: "http://fake"}, nil
		})})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		var informers []*informer
		for _, name := range []string{"default", "kube-system"} {
			l, err := p.Acquire(t.Context(), Key{
				Resource:      schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
				LabelSelector: "kubernetes.io/metadata.name=" + name,
			})
			require.NoError(t, err)
			require.NoError(t, l.WaitForSync(t.Context()))
			informers = append(informers, l.informer())
		}
		a, b := informers[0], informers[1]
		requireHistory := func(number int) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, i := range informers {
				require.Equal(t, number, i.shows().number, i.key)
				require.NoError(t, i.distrustLocked(time.Minute))
			}
		}
		first := a.shows()
		requireHistory(0)

		a.distrust(&elsewhereError{a.key, first, ErrHistory}) // b had not listed yet
		requireHistory(1)
		b.distrust(&elsewhereError{b.key, first, ErrHistory}) // it has listed since
		requireHistory(1)

		second := a.shows()
		_, entered := a.siblings.number(second.epoch, true, second.number)
		require.True(t, entered) // before the lists of both had ended
		for _, i := range informers {
			p.relistEarlier(i, false)
		}
		requireHistory(2)
	})
}
