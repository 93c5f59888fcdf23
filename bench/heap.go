// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/bench/measure"
)

const (
	// sampleEvery is the interval of the samples that look for the heap's peak.
	sampleEvery = time.Millisecond
	heapMetric  = "/memory/classes/heap/objects:bytes"
)

// per returns how much each of n things added.
func per(n int, before, after measure.Footprint, prefix string) measure.Figures {
	each := func(after, before float64) float64 { return (after - before) / float64(n) }
	return measure.Figures{
		prefix + "goroutines": each(float64(after.Goroutines), float64(before.Goroutines)),
		prefix + "heap":       each(after.Heap, before.Heap),
		prefix + "inuse":      each(after.InUse, before.InUse),
		prefix + "stack":      each(after.Stack, before.Stack),
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

// profileCPU starts a CPU profile in a file; an empty path means none. Profiling
// makes the figures worse.
func profileCPU(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return func() error { pprof.StopCPUProfile(); return file.Close() }, pprof.StartCPUProfile(file)
}

// profilePath returns the path of a profile; empty if the task has no directory
// for it.
func (t task) profilePath(suffix string) string {
	if t.Profile == "" {
		return ""
	}
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
