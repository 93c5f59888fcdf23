// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"fmt"
	"strings"

	"github.com/fleetcache/fleetcache/examples/rollout/api"
)

// blocks returns why the wave after this one may not begin; empty if it may.
func blocks(wave api.Wave, clusters []api.ClusterStatus) string {
	var failed, open, unavailable []string
	for _, c := range clusters {
		switch c.State {
		case api.ClusterFailed:
			failed = append(failed, c.Name)
		case api.ClusterUnavailable:
			unavailable = append(unavailable, c.Name)
		case api.ClusterReady:
		default:
			open = append(open, c.Name)
		}
	}
	if len(unavailable) > wave.MaxUnavailable {
		open = append(open, unavailable...)
	}
	switch {
	case len(failed) > 0:
		return fmt.Sprintf("wave %s failed in %s", wave.Name, strings.Join(failed, ", "))
	case len(open) > 0:
		return fmt.Sprintf("wave %s waits for %s", wave.Name, strings.Join(open, ", "))
	}
	return ""
}

// summary returns the phase and message of a Rollout, given why it does not go
// on, if so.
func summary(clusters []api.ClusterStatus, blocked string) (api.Phase, string) {
	var missing []string
	for _, c := range clusters {
		switch c.State {
		case api.ClusterFailed:
			return api.Failed, blocked
		case api.ClusterReady:
		default:
			missing = append(missing, c.Name)
		}
	}
	switch {
	case len(missing) == 0:
		return api.Complete, ""
	case blocked == "":
		return api.Progressing, "waits for " + strings.Join(missing, ", ")
	}
	return api.Progressing, blocked
}
