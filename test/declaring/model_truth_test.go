// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// requireTruth compares what each owner has read with what the servers have. It
// is called when nothing is wrong any more: each watch answers, unless there is
// no such kind or cluster.
func (m *wayBack) requireTruth() {
	m.t.Helper()
	for _, owner := range owners {
		m.mu.Lock()
		spec, got := m.specLocked(owner), m.recorded[owner].answers
		m.mu.Unlock()
		for _, n := range spec {
			for _, cluster := range m.selected(n.Target) {
				at := fmt.Sprintf("%s at %v: %s", owner, time.Since(m.began), got[0].read)
				if want, known := m.truth(cluster, n); known {
					require.Equal(m.t, want, got[0], at)
				} else {
					require.True(m.t, got[0].waits, at)
				}
				got = got[1:]
			}
		}
	}
}

// truth returns the answer to a read of one cluster by its server. It is not
// known if there is no such cluster, or if it does not serve the kind.
func (m *wayBack) truth(cluster client.ObjectKey, n need) (want answer, known bool) {
	server, list, gvk := m.at[cluster.Name], &unstructured.UnstructuredList{}, n.Kind.GetObjectKind().GroupVersionKind()
	if server == nil {
		return answer{}, false
	}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	options := n.Options
	if gvk == nodes {
		options = slices.DeleteFunc(slices.Clone(options), func(o client.ListOption) bool {
			_, namespace := o.(client.InNamespace)
			return namespace
		})
	}
	err := server.Client().List(m.t.Context(), list, options...)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return answer{}, false
	}
	require.NoError(m.t, err)
	var objects []string
	for i := range list.Items {
		objects = append(objects, nameOf(&list.Items[i]))
	}
	slices.Sort(objects)
	want = answer{
		read:    n.String() + " in " + cluster.Name,
		objects: strings.Join(objects, " "),
		cached:  true,
		watched: true,
	}
	if n.form == "get" && len(objects) == 0 {
		want.reason = "NotFound"
	}
	return want, true
}
