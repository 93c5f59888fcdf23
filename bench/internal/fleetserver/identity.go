// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"sync/atomic"
	"time"

	"github.com/fleetcache/fleetcache/internal/certs"
)

// identity is the certificate of a server, and that of its authority in PEM.
type identity struct {
	authority   []byte
	certificate tls.Certificate
}

// validFor is how long certificates are valid.
const validFor = 24 * time.Hour

// newIdentity makes an authority for one cluster, as each has its own, and the
// certificate of its server.
func newIdentity(cluster, address string) identity {
	ca := template(cluster + "-ca")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	authority := certs.SelfSign(ca)
	leaf := template("kube-apiserver")
	leaf.IPAddresses = []net.IP{net.ParseIP(address)}
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}

	return identity{authority: authority.Cert, certificate: authority.Issue(leaf).TLS()}
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(validFor),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

// listener counts the bytes that its connections send.
type listener struct {
	net.Listener

	sent *atomic.Int64
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, sent: l.sent}, nil
}

type conn struct {
	net.Conn

	sent *atomic.Int64
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}
