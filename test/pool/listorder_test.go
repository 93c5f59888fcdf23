// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// listInOrder is a list whose members are sorted by name, as servers and
// proxies that hold it in a map write it: the kind comes after the items.
func listInOrder(kind, more string, items ...string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","items":[%s],"kind":%q,"metadata":{"resourceVersion":"500"%s}}`,
		strings.Join(items, ","), kind, more)
}

func bareWidget(name string, rv int) string {
	return fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":"u-%s","resourceVersion":"%d"}}`, name, name, rv)
}

// TestHazardListNamesItsKindBehindItsItems: the members of a JSON object have
// no order, and items of Kubernetes' built-in kinds have no kind of their own.
func TestHazardListNamesItsKindBehindItsItems(t *testing.T) {
	pages := func(t *testing.T, test func(p *informerpool.Pool, page *atomic.Value)) {
		synctest.Test(t, func(t *testing.T) {
			page := &atomic.Value{}
			page.Store(listInOrder("WidgetList", "", bareWidget("a", 400)))
			p, err := informerpool.New(informerpool.Options{PagedLists: true,
				Source: &pooltest.Scripted{Listed: func() string { return page.Load().(string) }}})
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close(context.Background())) }()
			test(p, page)
		})
	}
	t.Run("right kind", func(t *testing.T) {
		pages(t, func(p *informerpool.Pool, _ *atomic.Value) {
			l := pooltest.AcquireSynced(t, p, pooltest.Everything)
			require.Len(t, pooltest.Contents(t, l), 1)
			require.NoError(t, l.Trust(time.Hour))
			require.NoError(t, l.Unknown("", ""))
		})
	})
	for name, second := range map[string]string{
		"another kind":           listInOrder("SecretList", "", bareWidget("b", 490)),
		"cut off before it":      listInOrder("WidgetList", "", bareWidget("b", 490))[:150],
		"another kind, cut off":  pooltest.ListOf("SecretList", bareWidget("b", 490), bareWidget("c", 491))[:180],
		"no kind":                listInOrder("", "", bareWidget("b", 490)),
		"a kind that is no list": listInOrder("Widget", "", bareWidget("b", 490)),
	} {
		t.Run("second page of "+name, func(t *testing.T) {
			pages(t, func(p *informerpool.Pool, page *atomic.Value) {
				page.Store(listInOrder("WidgetList", `,"continue":"x"`, bareWidget("a", 400)))
				l := pooltest.Acquire(t, p, pooltest.Everything)
				synctest.Wait()
				require.False(t, l.HasSynced())
				page.Store(second)
				time.Sleep(time.Minute)
				require.False(t, l.HasSynced())
				_, err := l.Get("ns", "b")
				require.ErrorIs(t, err, informerpool.ErrNotSynced)
			})
		})
	}
}
