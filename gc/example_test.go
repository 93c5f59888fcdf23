// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/gc"
)

// On every run, two controllers declare everything they use. They never have to
// stop anything.
func ExampleCollector() {
	c, err := gc.New(gc.Options[string, string]{
		Acquire: func(_ context.Context, kind string) error {
			fmt.Println("  start", kind)
			return nil
		},
		Release: func(kind string) { fmt.Println("  stop", kind) },
		Grace:   -1, // no grace, so that this example ends soon
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	declare := func(owner string, kinds ...string) {
		fmt.Println(owner, "uses", kinds)
		if _, err := c.Declare(ctx, owner, kinds...); err != nil {
			panic(err)
		}
		if _, err := c.Sweep(ctx); err != nil { // Run does this by itself
			panic(err)
		}
	}
	declare("backup", "Pod", "Volume")
	declare("billing", "Pod")
	declare("backup", "Volume", "Snapshot")
	declare("backup", "Volume", "Snapshot")
	declare("billing")
	// Output:
	// backup uses [Pod Volume]
	//   start Pod
	//   start Volume
	// billing uses [Pod]
	// backup uses [Volume Snapshot]
	//   start Snapshot
	// backup uses [Volume Snapshot]
	// billing uses []
	//   stop Pod
}

// An owner is deleted without notice; Run detects it and releases what it used.
func ExampleCollector_Run() {
	released := make(chan string)
	c, err := gc.New(gc.Options[string, string]{
		Release:     func(kind string) { released <- kind },
		InUse:       func(_ context.Context, owner string) (bool, error) { return owner != "deleted", nil },
		MinInterval: time.Millisecond,
		Grace:       -1,
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- c.Run(ctx) }()

	_, _ = c.Declare(ctx, "kept", "Pod")
	_, _ = c.Declare(ctx, "deleted", "Pod", "Secret")
	fmt.Println("released:", <-released)
	fmt.Println("owners of Pod:", c.Owners("Pod"))

	cancel()
	fmt.Println("stopped:", <-stopped)
	_, err = c.Declare(context.Background(), "late", "Pod")
	fmt.Println(err)
	// Output:
	// released: Secret
	// owners of Pod: [kept]
	// stopped: <nil>
	// gc: closed
}

// A query with incomplete information returns ErrPartial, and nothing is
// collected.
func ExampleCollector_Sweep() {
	synced := false
	c, err := gc.New(gc.Options[string, string]{
		Release: func(string) {},
		InUse: func(_ context.Context, _ string) (bool, error) {
			if !synced {
				return false, fmt.Errorf("list of owners: %w", gc.ErrPartial)
			}
			return false, nil
		},
		Grace: -1,
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	_, _ = c.Declare(ctx, "backup", "Pod")

	swept, err := c.Sweep(ctx)
	fmt.Println(swept.Collected, swept.Released, err, errors.Is(err, gc.ErrPartial))
	synced = true
	swept, err = c.Sweep(ctx)
	fmt.Println(swept.Collected, swept.Released, err)
	// Output:
	// [] [] owner backup: list of owners: gc: partial information true
	// [backup] [Pod] <nil>
}

// One kind cannot be watched; the others can, and the next declaration tries
// again.
func ExampleCollector_Declare() {
	c, err := gc.New(gc.Options[string, string]{
		Acquire: func(_ context.Context, kind string) error {
			if kind == "Typo" {
				return errors.New("no such kind")
			}
			return nil
		},
		Release: func(string) {},
	})
	if err != nil {
		panic(err)
	}
	change, err := c.Declare(context.Background(), "backup", "Pod", "Typo", "Secret")
	fmt.Println("added:", change.Added)
	if bad, ok := errors.AsType[*gc.ResourceError[string]](err); ok {
		fmt.Println("bad:", bad.Resource, "because", bad.Err)
	}
	// Output:
	// added: [Pod Secret]
	// bad: Typo because no such kind
}
