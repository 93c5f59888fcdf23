// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"sync"
	"time"
)

// Run releases resources and looks at owners, each when it is due, until ctx
// ends. It then closes the collector, ends the ctx of every callback, and
// returns nil once all have returned: no callback runs after it. It releases
// nothing at the end: the code that stops a collector also stops what the
// resources belong to, and Snapshot still returns the resources held. A second
// call returns ErrRunning, or ErrClosed after the end.
func (c *Collector[O, R]) Run(ctx context.Context) error {
	if err := c.start(); err != nil {
		return err
	}
	var loops sync.WaitGroup
	loops.Go(func() { c.releaseLoop(ctx) })
	loops.Go(func() { c.lookLoop(ctx) })
	<-ctx.Done()
	c.close()
	loops.Wait()

	return nil
}

func (c *Collector[O, R]) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch {
	case c.closedLocked():
		return ErrClosed
	case c.running:
		return ErrRunning
	}

	c.running = true
	return nil
}

func (c *Collector[O, R]) releaseLoop(ctx context.Context) {
	for c.releases.wait(ctx) {
		_, errs := c.releaseDue(ctx)
		if ctx.Err() != nil {
			return
		}
		for _, err := range errs {
			c.opts.Logger.Error(err, "release failed")
		}
	}
}

func (c *Collector[O, R]) lookLoop(ctx context.Context) {
	var looks sync.WaitGroup
	defer looks.Wait()
	for c.looks.wait(ctx) {
		if c.admit(ctx) != nil {
			return
		}
		key, ok := c.looks.pop(time.Now())
		if !ok {
			<-c.slots
			continue
		}
		looks.Go(func() {
			collected, err := c.lookAdmitted(ctx, key)
			if ctx.Err() == nil {
				c.logLook(key, collected, err)
			}
		})
	}
}
