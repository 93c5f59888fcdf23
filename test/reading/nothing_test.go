// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// selectorForm is a form of selector, as an option of lists and of deletes.
type selectorForm struct {
	option interface {
		client.ListOption
		client.DeleteAllOfOption
	}
	// selects are the names of those of someConfigMaps(4) that it selects.
	selects []string
	// refused means that watches refuse it, since it selects nothing.
	refused bool
}

var (
	noneOf = []string{}
	allOf  = []string{"config-0", "config-1", "config-2", "config-3"}
	halfOf = []string{"config-1", "config-3"}
)

// selectorForms are all forms of selectors that select nothing, or everything,
// and some that select a part.
var selectorForms = map[string]selectorForm{
	"label selector of nil":       {client.MatchingLabelsSelector{}, noneOf, true},
	"labels.Nothing":              {client.MatchingLabelsSelector{Selector: labels.Nothing()}, noneOf, true},
	"field selector of nil":       {client.MatchingFieldsSelector{}, noneOf, true},
	"fields.Nothing":              {client.MatchingFieldsSelector{Selector: fields.Nothing()}, noneOf, true},
	"labels.Nothing among others": {manyOptions{labels: labels.Nothing(), fields: fields.Everything()}, noneOf, true},
	"fields.Nothing among others": {manyOptions{labels: labels.Everything(), fields: fields.Nothing()}, noneOf, true},
	"fields.Nothing and a name": {manyOptions{fields: fields.AndSelectors(
		fields.Nothing(), fields.OneTermEqualSelector("metadata.name", "config-1"))}, noneOf, true},
	"fields.Nothing and a name twice": {manyOptions{fields: fields.AndSelectors(
		fields.OneTermEqualSelector("metadata.name", "config-1"),
		fields.OneTermNotEqualSelector("metadata.name", "config-2"), fields.Nothing())}, noneOf, true},
	"labels.Nothing instead of those of Raw": {
		manyOptions{labels: labels.Nothing(), raw: &metav1.ListOptions{LabelSelector: "app"}}, noneOf, true},

	"labels of no object": {client.MatchingLabels{"app": "none"}, noneOf, false},
	"labels.Everything":   {client.MatchingLabelsSelector{Selector: labels.Everything()}, allOf, false},
	"labels of a nil map": {client.MatchingLabels(nil), allOf, false},
	"no label keys":       {client.HasLabels{}, allOf, false},
	"fields.Everything":   {client.MatchingFieldsSelector{Selector: fields.Everything()}, allOf, false},
	"fields of a nil map": {client.MatchingFields(nil), allOf, false},
	"everything by both selectors": {
		manyOptions{labels: labels.Everything(), fields: fields.Everything()}, allOf, false,
	},
	"neither selector":       {manyOptions{}, allOf, false},
	"Raw without a selector": {manyOptions{raw: &metav1.ListOptions{}}, allOf, false},
	"half by labels":         {client.MatchingLabels{"app": "1"}, halfOf, false},
	"half by labels of Raw":  {manyOptions{raw: &metav1.ListOptions{LabelSelector: "app=1"}}, halfOf, false},
	"half by labels instead of those of Raw": {
		manyOptions{labels: appIs("1"), raw: &metav1.ListOptions{LabelSelector: "app=0"}}, halfOf, false},
	"one by a field": {client.MatchingFields{"metadata.name": "config-1"}, []string{"config-1"}, false},
	"one by a field of Raw": {
		manyOptions{raw: &metav1.ListOptions{FieldSelector: "metadata.name=config-1"}}, []string{"config-1"}, false},
	"all but one by a field": {
		manyOptions{fields: fields.OneTermNotEqualSelector("metadata.name", "config-0")}, allOf[1:], false},
}

func appIs(value string) labels.Selector { return labels.SelectorFromSet(labels.Set{"app": value}) }

// manyOptions are options that set several selectors.
type manyOptions struct {
	labels labels.Selector
	fields fields.Selector
	raw    *metav1.ListOptions
}

// ApplyToList implements client.ListOption.
func (s manyOptions) ApplyToList(o *client.ListOptions) {
	o.LabelSelector, o.FieldSelector, o.Raw = s.labels, s.fields, s.raw.DeepCopy()
}

// ApplyToDeleteAllOf implements client.DeleteAllOfOption.
func (s manyOptions) ApplyToDeleteAllOf(o *client.DeleteAllOfOptions) {
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
				cc, _ := configMapFleet(t, 4)
				live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
				require.NoError(t, err)
				h := &house{T: t, cc: cc, in: "default", form: form, await: func(holds func() bool) {
					synctest.Wait()
					require.True(t, holds())
				}}
				h.passesEveryDoor(form.selects, func() {
					for _, o := range someConfigMaps(4) {
						require.NoError(t, client.IgnoreAlreadyExists(live.Create(t.Context(), o)))
					}
				})
			})
		})
	}
}

// TestHazardInvalidSelectorOfRaw: it fails wherever it is read.
func TestHazardInvalidSelectorOfRaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, r := configMapFleet(t, 1)
		for field, raw := range map[string]*metav1.ListOptions{
			"Raw.LabelSelector": {LabelSelector: "a in"}, "Raw.FieldSelector": {FieldSelector: "a"},
		} {
			for _, mode := range []clustercache.ReadMode{clustercache.PreferCache, clustercache.LiveOnly} {
				_, list := configMapForms()["typed"]()
				err := r.List(t.Context(), list, manyOptions{raw: raw}, mode)
				require.ErrorContains(t, err, field)
				require.ErrorContains(t, err, "fleet/a")
			}
			kind := clustercache.Kind(fleettest.ConfigMap)
			_, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), kind, manyOptions{raw: raw})
			require.ErrorContains(t, err, field)
		}
	})
}

// TestHazardSelectorOfNoClusterSelectsAll is
// TestHazardSelectorOfNothingSelectsEverything for the selectors of clusters.
func TestHazardSelectorOfNoClusterSelectsAll(t *testing.T) {
	env := func(value string) labels.Selector { return labels.SelectorFromSet(labels.Set{"env": value}) }
	none, both := []string{}, []string{"dev", "prod"}
	for name, form := range map[string]struct {
		selector labels.Selector
		selects  []string
		refused  bool // as one that selects nothing, where that could only be a mistake
	}{
		"nil":                   {nil, both, false},
		"Nothing":               {labels.Nothing(), none, true},
		"Nothing and a label":   {labels.Nothing().Add(mustRequire(env("prod"))...), none, true},
		"Everything":            {labels.Everything(), both, false},
		"of an empty set":       {labels.SelectorFromSet(nil), both, false},
		"of a label":            {env("prod"), []string{"prod"}, false},
		"of no cluster's label": {env("test"), none, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := fleettest.NewDirectory()
				for _, value := range both {
					api := fleettest.NewAPI(t, "uid-"+value)
					api.Put("one", value, nil)
					d.Answer(fleettest.Key(value), func() (resolver.Access, error) {
						access, err := resolver.NewAccess(api.Config())
						return access.WithLabels(map[string]string{"env": value}), err
					})
				}
				cc := fleettest.Start(t, fleettest.Silent(d))
				for _, value := range both {
					require.NoError(t, cc.Cluster(fleettest.Key(value)).Engage())
				}
				synctest.Wait()

				found := []string{}
				for answer, err := range fleet.ByCluster(t.Context(), cc, clustercache.Kind(fleettest.ConfigMap),
					fleet.Options{ClusterSelector: form.selector, Sorted: true}) {
					require.NoError(t, err)
					found = append(found, answer.Cluster.Name)
				}
				require.Equal(t, form.selects, found, "fleet")

				shown := crowd{names: map[string]struct{}{}}
				s, err := cc.Subscribe(events.Selection{
					Kinds: fleettest.ConfigMaps, Watch: true, ClusterSelector: form.selector,
				}, func(e events.Object) { shown.add(e.Cluster.Name) })
				require.NoError(t, err)
				s.Start()
				t.Cleanup(s.Stop)
				q := fleettest.QueueOf[string](t)
				clusters := controller.ClusterSource(cc,
					func(_ context.Context, e events.Cluster) []string { return []string{e.Cluster.Name} },
					controller.ClusterSourceOptions{ClusterSelector: form.selector})
				require.NoError(t, clusters.Start(t.Context(), q))
				t.Cleanup(clusters.Stop)
				synctest.Wait()
				require.Equal(t, form.selects, shown.sorted(), "Subscribe")
				require.Len(t, form.selects, q.Len(), "ClusterSource")

				if form.selector == nil {
					return // selects the hub by its key in a Target, and is refused by Select
				}
				of, err := resolver.Select(d, form.selector)
				require.NoError(t, err)
				listed, err := of.Clusters(t.Context())
				require.NoError(t, err)
				require.Len(t, listed, len(form.selects), "Select")
				declared, err := cc.Declare(t.Context(), fleettest.Owner("one"), clustercache.Target{
					ClusterSelector: form.selector, Kind: clustercache.Kind(fleettest.ConfigMap),
				})
				require.Equal(t, form.refused, err != nil, "%v", err)
				require.Len(t, declared.Added, len(form.selects), "Declare")
			})
		})
	}
}

func mustRequire(s labels.Selector) labels.Requirements {
	all, _ := s.Requirements()
	return all
}
