// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// TestHazardContinuedInformerMissesADebt: another informer shows a change while
// one continues a third one, which owes that change: both owe it afterwards.
func TestHazardContinuedInformerMissesADebt(t *testing.T) {
	unreachable := func(types.NamespacedName) (dynamic.Interface, error) { return nil, context.Canceled }
	p, err := New(Options{Source: FromDynamic(unreachable)})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(context.Background())) }()
	key := Key{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
	from := newInformer(p, key)
	from.siblings.add(from)
	to := newInformer(p, key)
	s := from.siblings
	s.inherit(to, from)
	s.mu.Lock()
	for i := range s.members { // as a change does
		i.lead.debts.Owe(key, 7)
	}
	s.mu.Unlock()
	s.add(to)
	require.True(t, to.lead.debts.Any())
}
