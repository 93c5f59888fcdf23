// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
)

// TestTimelineIsBounded: a cluster that alternates between two phases for ever
// costs the bytes of a few transitions, and the last ones are there.
func TestTimelineIsBounded(t *testing.T) {
	c := &Connection{}
	c.view.Store(&View{})
	phases := []phase.Phase{phase.Degraded, phase.Ready}
	began := time.Now()
	for i := range 10_000 {
		before := c.state
		c.state.Phase, c.state.Since = phases[i%2], began.Add(time.Duration(i)*time.Second)
		c.publish(before)
		c.publish(c.state) // the same phase
	}
	last := c.view.Load().Timeline
	require.Len(t, last, timelineLimit)
	require.LessOrEqual(t, cap(last), timelineLimit+timelineLimit/2)
	require.LessOrEqual(t, timelineLimit*unsafe.Sizeof(Transition{}), uintptr(576))
	for i, transition := range last {
		require.Equal(t, began.Add(time.Duration(10_000-timelineLimit+i)*time.Second), transition.Time)
	}
	require.Equal(t, phase.Ready, last[timelineLimit-1].Phase)
}

// TestEndpointHoldsNoSecret: of a host, only scheme, host and port are shown.
func TestEndpointHoldsNoSecret(t *testing.T) {
	for host, want := range map[string]string{
		"https://user:secret@api.test:6443/clusters/a?token=secret#secret": "https://api.test:6443",
		"api.test:6443":          "https://api.test:6443",
		"https://api.test\x00/a": "",
		"http://[::1]:8080":      "http://[::1]:8080",
	} {
		require.Equal(t, want, endpointOf(host), "%q", host)
	}
}
