// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
)

// oneLabelled is the labels of one cluster.
type oneLabelled struct {
	env   string
	known bool
}

func (o *oneLabelled) Labels(client.ObjectKey) (map[string]string, bool) {
	return map[string]string{"env": o.env}, o.known
}

func (o *oneLabelled) Clusters() []client.ObjectKey { return nil }

// TestLabelFilter has events delivered late: the labels are those of now, which
// may be newer than the event.
func TestLabelFilter(t *testing.T) {
	const unknown = "?"
	type step struct {
		env    string // at the delivery
		event  events.ClusterType
		passes bool
		missed bool
	}
	for name, steps := range map[string][]step{
		"a connect supersedes what was withheld": {
			{unknown, events.PhaseChanged, false, false},
			{"prod", events.Connected, true, false},
			{"prod", events.PhaseChanged, true, false},
		},
		"any other event does not": {
			{"dev", events.Connected, false, false},
			{"prod", events.Relabeled, true, true},
		},
		"nor does a connect supersede the owner": {
			{unknown, events.Gained, false, false},
			{unknown, events.PhaseChanged, false, false},
			{"prod", events.Connected, true, true},
		},
		"it leaves once": {
			{"prod", events.Connected, true, false},
			{"dev", events.Relabeled, true, false},
			{"dev", events.Disconnected, false, false},
			{"dev", events.Removed, false, false},
		},
		"its end has two events": {
			{"prod", events.Connected, true, false},
			{unknown, events.Disconnected, true, false},
			{unknown, events.Removed, true, false},
			{unknown, events.PhaseChanged, false, false},
		},
		"another cluster has its name before they are delivered": {
			{"prod", events.Connected, true, false},
			{"dev", events.Disconnected, true, false},
			{"dev", events.Removed, true, false},
			{"dev", events.Connected, false, false},
		},
		"it enters again without another event": {
			{"prod", events.Connected, true, false},
			{"dev", events.Relabeled, true, false},
			{"prod", events.Relabeled, true, true},
			{"prod", events.PhaseChanged, true, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := &oneLabelled{}
			f := newLabelFilter(of.Labels, of.Clusters, labels.SelectorFromSet(labels.Set{"env": "prod"}))
			for i, s := range steps {
				of.env, of.known = s.env, s.env != unknown
				passes, missed := f.passes(events.Cluster{Type: s.event})
				require.Equal(t, s.passes, passes, "passes, step %d", i)
				require.Equal(t, s.missed, missed, "missed, step %d", i)
			}
		})
	}
}
