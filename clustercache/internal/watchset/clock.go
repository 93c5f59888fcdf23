// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"sync/atomic"
	"time"
)

// instant is a time that goroutines share without a lock. It keeps the
// monotonic clock reading, which a number of nanoseconds since 1970 does not,
// so ages computed from it do not change when the wall clock is set.
type instant struct{ at atomic.Int64 }

// firstInstant is the time that instants are counted from. It has a monotonic
// reading.
var firstInstant = time.Now()

func (i *instant) set(t time.Time) {
	i.at.Store(int64(t.Sub(firstInstant)))
}

func (i *instant) get() time.Time {
	return firstInstant.Add(time.Duration(i.at.Load()))
}
