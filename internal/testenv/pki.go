// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fleetcache/fleetcache/internal/certs"
	"github.com/fleetcache/fleetcache/internal/testenv/internal/port"
)

// validity is how long before and after the current time certificates are
// valid.
const validity = 24 * time.Hour

// pki holds the authorities and keys of a cluster. It is immutable, and
// clusters may share one. envtest would create a new one at each start.
type pki struct {
	serving certs.Pair // signs the first certificates of API servers
	clients certs.Pair // signs the certificates of users
	tokens  certs.Pair // signs service account tokens
}

func newPKI() *pki {
	return &pki{
		serving: newAuthority("serving"),
		clients: newAuthority("clients"),
		tokens:  newAuthority("service-account-tokens"),
	}
}

// newAuthority creates an authority with a unique name, so that a verifier
// never mistakes it for an earlier one.
func newAuthority(purpose string) certs.Pair {
	return certs.SelfSign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("testenv %s %s", purpose, rand.Text()[:8])},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		// Certificates may be issued that are valid only in the past or the
		// future.
		NotBefore: time.Now().AddDate(-1, 0, 0),
		NotAfter:  time.Now().AddDate(1, 0, 0),
	})
}

// serverCert issues a certificate for an API server on the loopback interface.
func serverCert(by certs.Pair, notBefore, notAfter time.Time) certs.Pair {
	return by.Issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.ParseIP(port.Host), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore:   notBefore,
		NotAfter:    notAfter,
	})
}

// clientCert issues a certificate with which a user authenticates until
// notAfter.
func (p *pki) clientCert(notAfter time.Time, user string, groups ...string) certs.Pair {
	return p.clients.Issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-validity),
		NotAfter:    notAfter,
	})
}

// File names under which envtest keeps certificates. It does not create files
// that exist.
const (
	servingFile = "apiserver"
	tokenFile   = "sa-signer"
	clientFile  = "client-ca.crt"
)

// writePair stores a pair as dir/name.crt and dir/name.key.
func writePair(p certs.Pair, dir, name string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o600),
		os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600),
	)
}

// certAuthn makes envtest's API server trust the certificates of a pki's users.
type certAuthn struct{ *pki }

var _ envtest.Authn = certAuthn{}

// Configure implements envtest.Authn.
func (c certAuthn) Configure(dir string, args *envtest.Arguments) error {
	path := filepath.Join(dir, clientFile)
	args.Set("client-ca-file", path)
	return os.WriteFile(path, c.clients.Cert, 0o600)
}

// Start implements envtest.Authn.
func (certAuthn) Start() error { return nil }

// AddUser implements envtest.Authn.
func (c certAuthn) AddUser(user envtest.User, base *rest.Config) (*rest.Config, error) {
	pair := c.clientCert(time.Now().Add(validity), user.Name, user.Groups...)
	config := rest.CopyConfig(base)
	config.CertData, config.KeyData = pair.Cert, pair.Key
	return config, nil
}

// Stop implements envtest.Authn.
func (certAuthn) Stop() error { return nil }
