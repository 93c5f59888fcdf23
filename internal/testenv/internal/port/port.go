// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package port reserves TCP ports of the loopback interface for servers that
// stop and start again but must keep their addresses.
package port

import (
	"net"
	"strconv"
)

// Host is the address of all reservations.
const Host = "127.0.0.1"

// Reservation is a TCP port of [Host] which the system assigns to no other
// socket until Close. A server that sets SO_REUSEADDR, as every listener of
// package net does, can listen on the port. While no server does, connections
// to it are refused.
type Reservation struct {
	port    int
	release func() error
}

// Port returns the port number.
func (r *Reservation) Port() int { return r.port }

// Addr returns the address as host:port.
func (r *Reservation) Addr() string { return net.JoinHostPort(Host, strconv.Itoa(r.port)) }

// Close releases the port. A second call does nothing. A listener on the port
// is not affected.
func (r *Reservation) Close() error { return r.release() }
