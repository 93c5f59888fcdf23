// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool/internal/selector"
	"github.com/fleetcache/fleetcache/internal/packed"
)

func pack(t *testing.T, namespace, name string, labels map[string]string) *packed.Object {
	t.Helper()
	codec := packed.NewCodec()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetUID("u")
	u.SetResourceVersion("1")
	u.SetLabels(labels)
	o, err := codec.PackUnstructured(codec.Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}), u)
	require.NoError(t, err)
	return o
}

// TestSelectorsThatMeanTheSameAreEqual: order, repetition and spelling do not
// matter.
func TestSelectorsThatMeanTheSameAreEqual(t *testing.T) {
	for given, want := range map[string]string{
		"":                "",
		"b=2,a=1,b=2":     "a=1,b=2",
		"a==1":            "a=1",
		"a in (1)":        "a=1",
		"a notin (1)":     "a!=1",
		"a in (2,1)":      "a in (1,2)",
		"!a, b":           "!a,b",
		"a notin (2 , 1)": "a notin (1,2)",
	} {
		got, err := selector.Labels(given)
		require.NoError(t, err, given)
		require.Equal(t, want, got, given)
		again, err := selector.Labels(got)
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for given, want := range map[string]string{
		"":                                 "",
		"b=2,a==1,b=2":                     "a=1,b=2",
		"a!=1":                             "a!=1",
		`metadata.name=a\,b`:               `metadata.name=a\,b`,
		"metadata.namespace=x,spec.node=n": "metadata.namespace=x,spec.node=n",
	} {
		got, err := selector.Fields(given)
		require.NoError(t, err, given)
		require.Equal(t, want, got, given)
	}
	for _, bad := range []string{"a=b=c", "=x", "a in 1"} {
		_, err := selector.Labels(bad)
		require.Error(t, err, bad)
	}
	for _, bad := range []string{"a", "=x"} {
		_, err := selector.Fields(bad)
		require.Error(t, err, bad)
	}
}

// TestOnlyNamesAreEvaluatedLocally: only a server knows the other fields.
func TestOnlyNamesAreEvaluatedLocally(t *testing.T) {
	require.True(t, selector.Local(""))
	require.True(t, selector.Local("metadata.name=a,metadata.namespace!=b"))
	require.False(t, selector.Local("metadata.name=a,spec.nodeName=b"))
	require.False(t, selector.Local("no selector"))
}

// TestFilterSelectsWhatTheLeaseAndAnyOfTheOthersDo: an object has to pass the
// lease's selector and, if there are others, one of them. Nil passes nothing.
func TestFilterSelectsWhatTheLeaseAndAnyOfTheOthersDo(t *testing.T) {
	a, b := pack(t, "x", "a", map[string]string{"app": "web"}), pack(t, "y", "b", nil)
	require.False(t, selector.Filter{}.Match(nil) || selector.Selector{}.Match(nil))

	for name, row := range map[string]struct {
		filter selector.Filter
		a, b   bool
	}{
		"everything":  {a: true, b: true},
		"a namespace": {filter: selector.Filter{Lease: selector.Selector{Namespace: "x"}}, a: true},
		"labels": {
			filter: selector.Filter{Lease: selector.Selector{Labels: labels.SelectorFromSet(labels.Set{"app": "web"})}},
			a:      true,
		},
		"a name": {
			filter: selector.Filter{Lease: selector.Selector{Fields: fields.ParseSelectorOrDie("metadata.name=b")}},
			b:      true,
		},
		"any of two": {
			filter: selector.Filter{Any: []selector.Selector{{Namespace: "x"}, {Namespace: "y"}}},
			a:      true,
			b:      true,
		},
		"lease, and other": {filter: selector.Filter{
			Lease: selector.Selector{Namespace: "x"},
			Any:   []selector.Selector{{Namespace: "y"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.a, row.filter.Match(a))
			require.Equal(t, row.b, row.filter.Match(b))
		})
	}
}

// TestObjectWithoutANamespaceIsInEveryOne: an API server ignores the namespace
// of a request for a kind that has none. The lease's selector names one only if
// the kind has.
func TestObjectWithoutANamespaceIsInEveryOne(t *testing.T) {
	node, x := pack(t, "", "node", nil), selector.Selector{Namespace: "x"}
	require.True(t, selector.Filter{Any: []selector.Selector{x}}.Match(node))
	require.False(t, selector.Filter{Lease: x}.Match(node))
	require.False(t, selector.Filter{Any: []selector.Selector{x}}.Match(pack(t, "y", "pod", nil)))
}
