// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package dial has the one set of settings by which remote clusters are
// dialled, whoever judges the addresses.
package dial

import (
	"context"
	"net"
	"syscall"
	"time"
)

// Timeout bounds a dial, name resolution included.
const Timeout = 30 * time.Second

// Control is asked about each address, after name resolution and before
// anything is sent to it. Its error ends the dial.
type Control = func(ctx context.Context, network, address string, c syscall.RawConn) error

// New returns a dialer that asks control, if it is not nil. It notices a host
// that has vanished within 45 s by TCP keep-alives: over HTTP/1.1 nothing else
// does.
func New(control Control) *net.Dialer {
	return &net.Dialer{
		Timeout:         Timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 10 * time.Second, Count: 3},
		ControlContext:  control,
	}
}
