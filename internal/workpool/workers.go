// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package workpool

// Workers runs jobs of one purpose, in order, and about a limited number at
// once. A job that takes longer than a second continues without being counted,
// and a whole queue is started in less than that, so that clusters that hang
// delay no other. There are no more goroutines than clusters: each cluster has
// one job of a purpose at a time, besides one that was cancelled and is ending.
type Workers struct {
	queue *Queue
	spawn func(func()) bool // see NewWorkers
}

// NewWorkers returns workers that run about limit jobs at once. spawn starts a
// goroutine that its owner waits for, and returns false once the owner has ended.
func NewWorkers(limit int, spawn func(func()) bool) Workers {
	return Workers{queue: New(limit), spawn: spawn}
}

// Submit queues a job. After the end of the owner it is dropped.
func (w *Workers) Submit(job func()) {
	given := make(chan struct{}) // its turn may come before Submit returns
	var slot *Slot
	slot = w.queue.Submit(func() {
		w.spawn(func() {
			<-given
			defer slot.Free()
			job()
		})
	})
	close(given)
}
