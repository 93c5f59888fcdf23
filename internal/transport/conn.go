// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"net"
)

// conn is a connection of one lane. Cutting it cuts all streams on it, at no
// cost per stream.
type conn struct {
	net.Conn

	l     *lane
	ready bool // counted in lane.ready; guarded by generation.mu
}

// Close implements net.Conn; net/http calls it.
func (c *conn) Close() error {
	c.l.lost(c)
	return c.Conn.Close()
}

// cut closes the connection underneath net/http, which then ends everything on
// it. Unlike closing a tls.Conn, which first tries to write an alert, cut never
// blocks.
func (c *conn) cut(error) { _ = c.Conn.Close() }

// connOf finds our connection below the layers of TLS on it.
func connOf(under net.Conn) (c *conn, multiplexed bool) {
	for {
		switch layer := under.(type) {
		case *conn:
			return layer, multiplexed
		case *tls.Conn:
			multiplexed = multiplexed || layer.ConnectionState().NegotiatedProtocol == "h2"
			under = layer.NetConn()
		default:
			return nil, multiplexed
		}
	}
}
