// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"strings"
	"sync"
	"time"
)

const (
	// collections is how many times garbage is collected before memory is
	// measured. Two collections empty the sync.Pools, and each one halves
	// stacks that are hardly used, as happens to every process in the long run.
	collections = 6
	// quietFor is how long the number of goroutines must not change before it
	// is counted.
	quietFor = 300 * time.Millisecond
	quietMax = 10 * time.Second
	// sampleEvery is the interval of the samples that look for the heap's peak.
	sampleEvery = time.Millisecond
	heapMetric  = "/memory/classes/heap/objects:bytes"
)

// footprint is the memory and the goroutines of a process.
type footprint struct {
	goroutines         int
	heap, inUse, stack float64
}

// settle waits until the number of goroutines is stable, collects garbage and
// returns the remaining footprint.
func settle() footprint {
	last, since := runtime.NumGoroutine(), time.Now()
	for end := time.Now().Add(quietMax); time.Since(since) < quietFor && time.Now().Before(end); {
		time.Sleep(quietFor / 10)
		if n := runtime.NumGoroutine(); n != last {
			last, since = n, time.Now()
		}
	}

	for range collections {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)

	return footprint{
		goroutines: last,
		heap:       float64(m.HeapAlloc),
		inUse:      float64(m.HeapInuse),
		stack:      float64(m.StackInuse),
	}
}

// per returns how much each of n things added.
func (f footprint) per(n int, before footprint, prefix string) figures {
	each := func(after, before float64) float64 { return (after - before) / float64(n) }
	return figures{
		prefix + "goroutines": each(float64(f.goroutines), float64(before.goroutines)),
		prefix + "heap":       each(f.heap, before.heap),
		prefix + "inuse":      each(f.inUse, before.inUse),
		prefix + "stack":      each(f.stack, before.stack),
	}
}

// sampler records the heap's peak, including garbage that has not been swept
// yet.
type sampler struct {
	stop    chan struct{}
	running sync.WaitGroup
	max     uint64
}

func startSampler() *sampler {
	s := &sampler{stop: make(chan struct{})}
	s.running.Go(func() {
		sample := []metrics.Sample{{Name: heapMetric}}
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()

		for {
			metrics.Read(sample)
			s.max = max(s.max, sample[0].Value.Uint64())
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
		}
	})
	return s
}

// end returns the highest value seen.
func (s *sampler) end() float64 {
	close(s.stop)
	s.running.Wait()
	return float64(s.max)
}

// profileCPU starts a CPU profile, if the task has a directory for it.
// Profiling makes the figures worse.
func (t task) profileCPU() (stop func(), err error) {
	if t.Profile == "" {
		return func() {}, nil
	}
	f, err := os.Create(t.profilePath("cpu"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

func (t task) profilePath(suffix string) string {
	return filepath.Join(t.Profile, strings.ReplaceAll(t.Work+"-"+t.Subject+"-"+suffix, "/", "_"))
}

// profile writes profiles of the live heap and the goroutines to the task's
// directory, if it has one.
func (t task) profile(moment string) error {
	if t.Profile == "" {
		return nil
	}
	for _, p := range []struct {
		name  string
		debug int
		file  string
	}{{"heap", 0, ".heap"}, {"goroutine", 2, ".goroutines"}} {
		f, err := os.Create(t.profilePath(moment + p.file))
		if err != nil {
			return err
		}
		if err := pprof.Lookup(p.name).WriteTo(f, p.debug); err != nil {
			return fmt.Errorf("write profile: %w", err)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}

	return nil
}
