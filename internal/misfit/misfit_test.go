// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package misfit_test

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/internal/misfit"
)

// TestFieldIsNamedWithoutAWordOfTheDocument: values and the keys of maps may be
// secret.
func TestFieldIsNamedWithoutAWordOfTheDocument(t *testing.T) {
	pod, secret := reflect.TypeFor[corev1.Pod](), reflect.TypeFor[*corev1.Secret]()
	for document, row := range map[string]struct {
		of   reflect.Type
		want string
	}{
		`{"spec":{"priority":"hunter2"}}`:          {pod, "spec.priority: a string does not fit int32"},
		`{"spec":{"priority":4711.5}}`:             {pod, "spec.priority: a number does not fit int32"},
		`{"metadata":{"labels":["hunter2"]}}`:      {pod, "metadata.labels: an array does not fit map[string]string"},
		`{"metadata":{"labels":{"hunter2":true}}}`: {pod, "metadata.labels[...]: a boolean does not fit string"},
		`{"status":{"startTime":"hunter2"}}`:       {pod, "status.startTime: a string does not fit v1.Time"},
		`{"spec":{"containers":[{},{"resources":{"limits":{"cpu":"hunter2"}}}]}}`: {
			pod, "spec.containers[1].resources.limits[...]: a string does not fit resource.Quantity"},
		`{"kind":{"hunter2":1}}`:          {pod, "kind: an object does not fit string"},
		`{"data":{"hunter2":"hunter2!"}}`: {secret, "data[...]: a string does not fit []uint8"},
		` ["hunter2"]`:                    {secret, "an array does not fit v1.Secret"},
		`4711`:                            {secret, "a number does not fit v1.Secret"},
		`{"data":{"a":"aHVudGVyMg=="}}`:   {secret, ""},
		`{"data":`:                        {secret, ""},
		`{"metadata":{"labels":{"a":4711}}}`: {reflect.TypeFor[metav1.PartialObjectMetadata](),
			"metadata.labels[...]: a number does not fit string"},
		`[1]`: {reflect.TypeFor[map[string]any](), "an array does not fit map[string]interface {}"},
	} {
		require.Equal(t, row.want, misfit.Find([]byte(document), row.of), document)
	}
}

// node is a type that contains itself.
type node struct {
	Next *node `json:"next"`
	Leaf int   `json:"leaf"`
}

func TestDepthIsBounded(t *testing.T) {
	const deep = 5000
	document := strings.Repeat(`{"next":`, deep) + `{"leaf":"x"}` + strings.Repeat("}", deep)
	found := misfit.Find([]byte(document), reflect.TypeFor[node]())
	require.Contains(t, found, "next.next: an object does not fit")
	require.Less(t, len(found), 1000)
}

// TestOneLineForAnObjectAndCause: and a bounded number in all.
func TestOneLineForAnObjectAndCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l misfit.Log
		one := errors.New("one")
		require.True(t, l.First("a", one))
		require.False(t, l.First("a", one))
		require.True(t, l.First("b", one))
		lines := 0
		for i := range 1000 {
			if l.First("a", errors.New(strconv.Itoa(i))) {
				lines++
			}
		}
		require.Equal(t, 98, lines)
		time.Sleep(2 * time.Hour)
		require.True(t, l.First("a", one))
	})
}
