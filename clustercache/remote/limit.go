// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An object gets no more events than client-go's recorder of its first API
// lets through.
const (
	limitBurst = 25
	limitEvery = 5 * time.Minute
)

// subject is an object of a cluster that events are about.
type subject struct {
	cluster   client.ObjectKey
	regarding corev1.ObjectReference
}

// allow reports whether a subject may have another series. Of subjects beyond
// maxSeries, the one that was last seen longest ago begins anew.
func (r *Recorder) allow(s subject, now time.Time) bool {
	known, _ := r.limits.Get(s)
	limit, ok := known.(*rate.Limiter)
	if !ok {
		limit = rate.NewLimiter(rate.Every(limitEvery), limitBurst)
		r.limits.Add(s, limit)
	}
	return limit.AllowN(now, 1)
}
