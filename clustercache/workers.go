// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import "github.com/fleetcache/fleetcache/internal/workpool"

// workers runs jobs of one purpose, in order, and about a limited number at
// once. A job that takes longer than a second continues without being counted,
// and a whole queue is started in less than that, so that clusters that hang
// delay no other. There are no more goroutines than clusters: each cluster has
// one job of a purpose at a time, besides one that was cancelled and is ending.
type workers struct {
	queue *workpool.Queue
	spawn func(func()) bool // starts a goroutine that Start waits for; false after the end
}

func newWorkers(limit int, spawn func(func()) bool) workers {
	return workers{queue: workpool.New(limit), spawn: spawn}
}

// submit queues a job. After the end of the ClusterCache it is dropped.
func (w *workers) submit(job func()) {
	given := make(chan struct{}) // its turn may come before Submit returns
	var slot *workpool.Slot
	slot = w.queue.Submit(func() {
		w.spawn(func() {
			<-given
			defer slot.Free()
			job()
		})
	})
	close(given)
}
