// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

func TestMatchesLabelsAsAMapWould(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	for _, l := range []string{`null`, `{}`, `{"a":"b"}`, `{"a":"b","c":"","d\u0065":"f"}`, `{"a":"x","a":"b"}`,
		`{"a":null}`} {
		o := mustPack(t, c, k, []byte(`{"metadata":{"name":"n","labels":`+l+`}}`))
		for _, s := range []string{``, `a`, `!a`, `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `c=`, `de=f`, `de,a`,
			`zz`} {
			sel, err := labels.Parse(s)
			require.NoError(t, err)
			require.Equal(t, sel.Matches(labels.Set(o.GetLabels())), o.MatchesLabels(sel), "%s on %s", s, l)
		}
		require.True(t, o.MatchesLabels(nil))
	}
}

// TestLabelsAndOwnersAreReadFromTheBeginningOfTheBody: nothing behind them is
// decoded, and a body in which even they are damaged is no object without
// labels.
func TestLabelsAndOwnersAreReadFromTheBeginningOfTheBody(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	var keep []*Object
	for i := range samples + 1 {
		keep = append(keep, mustPack(t, c, k, pods(i)))
	}
	o := keep[samples]
	require.EqualValues(t, codecDense, o.body[0])
	want := &unstructured.Unstructured{}
	require.NoError(t, want.UnmarshalJSON(pods(samples)))
	selector := labels.SelectorFromSet(want.GetLabels())

	whole := o.body
	for _, body := range []string{whole, whole[:len(whole)*3/4]} {
		o.body = body
		require.Equal(t, want.GetLabels(), o.GetLabels())
		require.Equal(t, want.GetOwnerReferences(), o.GetOwnerReferences())
		require.True(t, o.MatchesLabels(selector))
	}
	require.ErrorIs(t, o.Into(&corev1.Pod{}), ErrCorrupt)

	_, block, ok := readHead([]byte(whole))
	require.True(t, ok)
	o.body = whole[:len(whole)-len(block)]
	require.Panics(t, func() { o.GetLabels() })
	require.Panics(t, func() { o.GetOwnerReferences() })
	require.Panics(t, func() { o.MatchesLabels(selector) })
	require.Panics(t, func() {
		for range o.OwnerUIDs() {
			require.Fail(t, "read from a damaged body")
		}
	})
}

// TestLabelsThatNoneHasAreFoundWithoutReadingAny: most objects that a selector
// does not match are passed over by their digests, and none that it matches.
func TestLabelsThatNoneHasAreFoundWithoutReadingAny(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	passed := 0
	for i := range 100 {
		o := mustPack(t, c, k, pods(i))
		for key, value := range o.GetLabels() {
			for _, sel := range []string{key + "=" + value, key, key + "!=x", key + " in (x," + value + ")", "!none"} {
				parsed, err := labels.Parse(sel)
				require.NoError(t, err)
				require.True(t, o.MatchesLabels(parsed), sel)
				require.True(t, o.MayHave(Required(parsed)), sel)
			}
		}
		if o.MayHave(Required(labels.SelectorFromSet(labels.Set{"app": fmt.Sprint("none-", i)}))) {
			passed++
		}
		require.True(t, o.MayHave(Required(nil)))
	}
	require.Less(t, passed, 25)
}

func TestOwnerUIDsCanBeLeftEarly(t *testing.T) {
	c := NewCodec()
	o := mustPack(t, c, c.Kind(podGVK),
		[]byte(`{"metadata":{"name":"n","ownerReferences":[{"uid":"first"},{"uid":"second"}]}}`))
	for uid := range o.OwnerUIDs() {
		require.Equal(t, types.UID("first"), uid)
		break
	}
}
