// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
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
)

// Footprint is the memory and the goroutines of a process.
type Footprint struct {
	Goroutines int
	// Heap is live; InUse is that of the spans it lies in.
	Heap, InUse, Stack float64
	// Allocations is how many objects the process has allocated so far, and
	// Allocated their bytes.
	Allocations, Allocated float64
}

// Settle waits until the number of goroutines is stable, collects garbage and
// returns the remaining footprint.
func Settle() Footprint {
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

	return Footprint{
		Goroutines:  last,
		Heap:        float64(m.HeapAlloc),
		InUse:       float64(m.HeapInuse),
		Stack:       float64(m.StackInuse),
		Allocations: float64(m.Mallocs),
		Allocated:   float64(m.TotalAlloc),
	}
}

// CPU returns the CPU time that the process has used, in user and kernel mode.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it fails only for an invalid argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// RSS returns the resident memory of the process, and its peak since the start
// or the last call of ResetPeak, in bytes. It needs Linux.
func RSS() (now, peak float64, err error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	if now, err = kilobytes(text, "VmRSS:"); err == nil {
		peak, err = kilobytes(text, "VmHWM:")
	}
	return now, peak, err
}

func kilobytes(status []byte, field string) (float64, error) {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(field)); ok {
			number, err := strconv.ParseFloat(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 64)
			return number * 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", field)
}

// ResetPeak makes the present resident memory the peak.
func ResetPeak() error {
	return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}
