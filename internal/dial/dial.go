// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package dial has the settings with which all remote clusters are dialed,
// regardless of the policy for addresses.
package dial

import (
	"context"
	"net"
	"syscall"
	"time"
)

// Timeout bounds a dial, including name resolution.
const Timeout = 30 * time.Second

// Control is called for each address, after name resolution and before anything
// is sent to the address. Its error ends the dial.
type Control = func(ctx context.Context, network, address string, c syscall.RawConn) error

// New returns a dialer that calls control if it is not nil. The dialer's TCP
// keep-alives detect a vanished host within 45 s; over HTTP/1.1 nothing else
// does.
func New(control Control) *net.Dialer {
	return &net.Dialer{
		Timeout: Timeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable:   true,
			Idle:     15 * time.Second,
			Interval: 10 * time.Second,
			Count:    3,
		},
		ControlContext: control,
	}
}
