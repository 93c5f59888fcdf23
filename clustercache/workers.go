// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import "sync"

// workers runs jobs, a bounded number at once, in order. It has goroutines only while there are jobs.
type workers struct {
	limit int
	spawn func(func()) bool // starts a goroutine somebody waits for; false once that is over

	mu      sync.Mutex // protects what follows
	jobs    []func()
	running int
}

// submit queues a job. After the end of the ClusterCache it is dropped.
func (w *workers) submit(job func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, job)
	if w.running == w.limit {
		return
	}
	w.running++
	if !w.spawn(w.work) {
		w.running--
		w.jobs = nil
	}
}

func (w *workers) work() {
	for {
		w.mu.Lock()
		if len(w.jobs) == 0 {
			w.running--
			w.jobs = nil // a burst must not keep its memory
			w.mu.Unlock()
			return
		}
		job := w.jobs[0]
		w.jobs[0] = nil
		w.jobs = w.jobs[1:]
		w.mu.Unlock()
		job()
	}
}
