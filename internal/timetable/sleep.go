// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package timetable

import (
	"context"
	"time"
)

// Sleep waits, and reports whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Wake puts something into a channel of one slot, unless it has something: what
// waits there looks again, once for all that has happened.
func Wake(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}
