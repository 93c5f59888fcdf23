// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
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
		event  clustercache.ClusterEventType
		passes bool
		missed bool
	}
	for name, steps := range map[string][]step{
		"a connect supersedes what was withheld": {
			{unknown, clustercache.PhaseChanged, false, false},
			{"prod", clustercache.Connected, true, false},
			{"prod", clustercache.PhaseChanged, true, false},
		},
		"any other event does not": {
			{"dev", clustercache.Connected, false, false},
			{"prod", clustercache.Relabeled, true, true},
		},
		"nor does a connect supersede the owner": {
			{unknown, clustercache.Gained, false, false},
			{unknown, clustercache.PhaseChanged, false, false},
			{"prod", clustercache.Connected, true, true},
		},
		"it leaves once": {
			{"prod", clustercache.Connected, true, false},
			{"dev", clustercache.Relabeled, true, false},
			{"dev", clustercache.Disconnected, false, false},
			{"dev", clustercache.Removed, false, false},
		},
		"its end has two events": {
			{"prod", clustercache.Connected, true, false},
			{unknown, clustercache.Disconnected, true, false},
			{unknown, clustercache.Removed, true, false},
			{unknown, clustercache.PhaseChanged, false, false},
		},
		"another cluster has its name before they are delivered": {
			{"prod", clustercache.Connected, true, false},
			{"dev", clustercache.Disconnected, true, false},
			{"dev", clustercache.Removed, true, false},
			{"dev", clustercache.Connected, false, false},
		},
		"it enters again without another event": {
			{"prod", clustercache.Connected, true, false},
			{"dev", clustercache.Relabeled, true, false},
			{"prod", clustercache.Relabeled, true, true},
			{"prod", clustercache.PhaseChanged, true, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := &oneLabelled{}
			f := newLabelFilter(of.Labels, of.Clusters, labels.SelectorFromSet(labels.Set{"env": "prod"}))
			for i, s := range steps {
				of.env, of.known = s.env, s.env != unknown
				passes, missed := f.passes(clustercache.ClusterEvent{Type: s.event})
				require.Equal(t, s.passes, passes, "passes, step %d", i)
				require.Equal(t, s.missed, missed, "missed, step %d", i)
			}
		})
	}
}
