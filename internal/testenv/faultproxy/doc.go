// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package faultproxy is a TCP proxy that misbehaves on demand. A test puts it
// between a client and a server and then refuses, stalls, slows or cuts their
// connections at run time:
//
//	p, err := faultproxy.New(serverAddr)
//	defer p.Close()
//	client.Dial(p.Addr())
//	p.Blackhole(faultproxy.Both) // a partition: the sockets stay, nothing passes
//	p.Heal()
//
// The proxy runs in the process of the test, on the loopback interface, and
// forwards bytes without interpreting them, so TLS works as without a proxy.
// All methods are safe for concurrent use. Faults add up until [Proxy.Heal].
package faultproxy
