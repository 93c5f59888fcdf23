// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import "time"

// ProcessesUnder returns the processes that were started by a path under dir.
var ProcessesUnder = processesUnder

// Prepare does what Main does before it runs the tests.
func Prepare(start time.Time, limit time.Duration) error { return prepare(start, limit) }

// WatchdogName is the argv[0] of a watchdog.
const WatchdogName = watchdogName

// DirPrefix starts the name of the directory of an Env.
const DirPrefix = dirPrefix

// OnEtcdStart makes the cluster call f instead of starting its etcd.
func (c *Cluster) OnEtcdStart(f func() error) { c.etcd.start = f }
