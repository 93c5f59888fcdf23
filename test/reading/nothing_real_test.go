// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestRealSelectorsMeanTheSameAtEveryDoor is
// TestHazardSelectorOfNothingSelectsEverything with a real API server, where
// controller-runtime's own client is the judge of each form, except of those
// that select nothing, of whose selector it sends the empty text.
func TestRealSelectorsMeanTheSameAtEveryDoor(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, 1)[0]
	judge := server.Client()
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), server.Config())
	cc := fleettest.Start(t, fleettest.Quick(d))
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
	require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))

	for i, name := range slices.Sorted(maps.Keys(selectorForms)) {
		t.Run(name, func(t *testing.T) {
			in := client.InNamespace(fmt.Sprintf("house-%d", i))
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(in)}}
			require.NoError(t, judge.Create(t.Context(), namespace))
			seed := func() {
				for _, o := range someConfigMaps(4) {
					o.SetNamespace(string(in))
					require.NoError(t, client.IgnoreAlreadyExists(judge.Create(t.Context(), o)))
				}
			}
			seed()
			form := selectorForms[name]
			list := &corev1.ConfigMapList{}
			require.NoError(t, judge.List(t.Context(), list, in, form.option))
			selected := namesIn(t, list)
			if form.refused {
				require.NotEmpty(t, selected, "the hazard")
				selected = noneOf
			}
			require.Equal(t, form.selects, selected)

			h := &house{T: t, cc: cc, in: in, form: form, await: func(holds func() bool) {
				require.Eventually(t, holds, time.Minute, 10*time.Millisecond)
			}}
			h.passesEveryDoor(selected, seed)
		})
	}
}
