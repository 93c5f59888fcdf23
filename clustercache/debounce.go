// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/fleetcache/fleetcache/clustercache/internal/debounce"
)

// newDebounce returns the queue that a source puts in front of its workqueue.
// The error is an *OptionError.
func newDebounce[request comparable](
	cc *ClusterCache, queue workqueue.TypedRateLimitingInterface[request], window, limit time.Duration,
) (*debounce.Queue[request], error) {
	if window < 0 {
		return nil, &OptionError{Field: "Debounce", Err: errors.New("negative")}
	}
	if limit < 0 {
		return nil, &OptionError{Field: "MaxDelay", Err: errors.New("negative")}
	}

	return debounce.New(queue, debounce.Config{
		Window:   window,
		MaxDelay: limit,
		Timers:   cc.timers,
		Spawn:    func(f func()) { cc.spawn(f) },
	}), nil
}
