// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// selectorForms are all forms of selectors that select nothing, or everything.
// Each is an option of lists and of deletes.
var selectorForms = map[string]struct {
	option interface {
		client.ListOption
		client.DeleteAllOfOption
	}
	selects int
}{
	"label selector of nil":        {client.MatchingLabelsSelector{}, 0},
	"labels.Nothing":               {client.MatchingLabelsSelector{Selector: labels.Nothing()}, 0},
	"field selector of nil":        {client.MatchingFieldsSelector{}, 0},
	"fields.Nothing":               {client.MatchingFieldsSelector{Selector: fields.Nothing()}, 0},
	"labels.Nothing among others":  {bothSelectors{labels.Nothing(), fields.Everything()}, 0},
	"fields.Nothing among others":  {bothSelectors{labels.Everything(), fields.Nothing()}, 0},
	"labels of no object":          {client.MatchingLabels{"app": "none"}, 0},
	"labels.Everything":            {client.MatchingLabelsSelector{Selector: labels.Everything()}, 4},
	"labels of a nil map":          {client.MatchingLabels(nil), 4},
	"no label keys":                {client.HasLabels{}, 4},
	"fields.Everything":            {client.MatchingFieldsSelector{Selector: fields.Everything()}, 4},
	"fields of a nil map":          {client.MatchingFields(nil), 4},
	"everything by both selectors": {bothSelectors{labels.Everything(), fields.Everything()}, 4},
	"neither selector":             {bothSelectors{}, 4},
	"half by labels":               {client.MatchingLabels{"app": "1"}, 2},
	"fields.Nothing and a name": {
		bothSelectors{nil, fields.AndSelectors(
			fields.Nothing(), fields.OneTermEqualSelector("metadata.name", "config-1"))}, 0,
	},
	"one by a field": {client.MatchingFields{"metadata.name": "config-1"}, 1},
}

// bothSelectors are options that set both selectors.
type bothSelectors struct {
	labels labels.Selector
	fields fields.Selector
}

// ApplyToList implements client.ListOption.
func (s bothSelectors) ApplyToList(o *client.ListOptions) {
	o.LabelSelector, o.FieldSelector = s.labels, s.fields
}

// ApplyToDeleteAllOf implements client.DeleteAllOfOption.
func (s bothSelectors) ApplyToDeleteAllOf(o *client.DeleteAllOfOptions) {
	s.ApplyToList(&o.ListOptions)
}

// TestHazardSelectorOfNothingSelectsEverything: a selector means the same to
// every door that it passes. The text of a selector that selects nothing is
// empty, which an API server takes for everything: a DeleteAllOf whose selector
// was forgotten would delete all objects of the namespace.
func TestHazardSelectorOfNothingSelectsEverything(t *testing.T) {
	for name, form := range selectorForms {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, r := configMapFleet(t, 4)
				cached, err := cc.Client(fleettest.Key("a"))
				require.NoError(t, err)
				live, err := cc.LiveClient(fleettest.Key("a"))
				require.NoError(t, err)
				in := client.InNamespace("default")
				count := func(door string, r client.Reader, opts ...client.ListOption) {
					for shape, fresh := range configMapForms() {
						_, list := fresh()
						list.SetContinue("of another list")
						err := r.List(t.Context(), list, append(opts, form.option, in)...)
						require.NoError(t, err, "%s %s", door, shape)
						require.Equal(t, form.selects, meta.LenList(list), "%s %s", door, shape)
						require.Empty(t, list.GetContinue(), "%s %s", door, shape)
					}
				}
				doors := func(when string, opts ...client.ListOption) {
					count("Reader "+when, r, opts...)
					count("Client "+when, cached, opts...)
					count("Reader live "+when, r, clustercache.LiveOnly)
					count("LiveClient "+when, live)
					ofFleet, err := 0, error(nil)
					for _, failed := range fleet.List(t.Context(), cc, &corev1.ConfigMap{}, form.option, in,
						fleet.Options{Clusters: []client.ObjectKey{fleettest.Key("a")}}) {
						ofFleet, err = ofFleet+1, errors.Join(err, failed)
					}
					require.NoError(t, err, when)
					require.Equal(t, form.selects, ofFleet, when)
				}
				doors("without a watch")

				require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
				doors("with a watch")
				doors("with a watch, cached alone", clustercache.CacheOnly)

				_, err = cc.Watch(t.Context(), fleettest.Key("a"), &corev1.ConfigMap{}, form.option, in)
				if form.selects == 0 && name != "labels of no object" && name != "fields.Nothing and a name" {
					require.ErrorContains(t, err, "selects nothing")
				} else {
					require.NoError(t, err)
				}

				for _, c := range []client.Client{cached, live} {
					all := &corev1.ConfigMap{}
					require.NoError(t, c.DeleteAllOf(t.Context(), all, in, form.option, client.DryRunAll))
					require.NoError(t, c.DeleteAllOf(t.Context(), all, in, form.option))
					left := &metav1.PartialObjectMetadataList{}
					left.SetGroupVersionKind(fleettest.ConfigMap.GroupVersion().WithKind("ConfigMapList"))
					require.NoError(t, live.List(t.Context(), left, in))
					require.Len(t, left.Items, 4-form.selects)
				}
			})
		})
	}
}
