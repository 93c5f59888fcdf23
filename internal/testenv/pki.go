// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fleetcache/fleetcache/internal/testenv/internal/port"
)

// validity is how long before and after the current time certificates are
// valid.
const validity = 24 * time.Hour

// pki holds the authorities and keys of a cluster. It is immutable, and
// clusters may share one. envtest would create a new one at each start.
type pki struct {
	serving *authority // signs the first certificates of API servers
	clients *authority // signs the certificates of users
	tokens  keyPair    // signs service account tokens
}

// keyPair is a certificate and its key, in PEM.
type keyPair struct{ cert, key []byte }

func newPKI() (*pki, error) {
	serving, err := newAuthority("serving")
	if err != nil {
		return nil, err
	}
	clients, err := newAuthority("clients")
	if err != nil {
		return nil, err
	}
	tokens, err := newAuthority("service-account-tokens")
	if err != nil {
		return nil, err
	}
	return &pki{serving: serving, clients: clients, tokens: tokens.pair}, nil
}

// authority is a certificate authority.
type authority struct {
	pair keyPair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority creates an authority with a unique name, so that a verifier
// never mistakes it for an earlier one.
func newAuthority(purpose string) (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("testenv %s %s", purpose, rand.Text()[:8])},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		// Certificates may be issued that are valid only in the past or the
		// future.
		NotBefore: time.Now().AddDate(-1, 0, 0),
		NotAfter:  time.Now().AddDate(1, 0, 0),
	}
	return issue(template, nil)
}

// serverCert issues a certificate for an API server on the loopback interface.
func (a *authority) serverCert(notBefore, notAfter time.Time) (keyPair, error) {
	leaf, err := issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.ParseIP(port.Host), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore:   notBefore,
		NotAfter:    notAfter,
	}, a)
	if err != nil {
		return keyPair{}, err
	}
	return leaf.pair, nil
}

// clientCert issues a certificate with which a user authenticates.
func (a *authority) clientCert(user string, groups ...string) (keyPair, error) {
	return a.clientCertUntil(time.Now().Add(validity), user, groups...)
}

// clientCertUntil is like clientCert, with the given end of validity.
func (a *authority) clientCertUntil(notAfter time.Time, user string, groups ...string) (keyPair, error) {
	leaf, err := issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-validity),
		NotAfter:    notAfter,
	}, a)
	if err != nil {
		return keyPair{}, err
	}
	return leaf.pair, nil
}

// issue signs a certificate with the given authority or, if that is nil, with
// its own key.
func issue(template *x509.Certificate, by *authority) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pair: keyPair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}}, nil
}

// File names under which envtest keeps certificates. It does not create files
// that exist.
const (
	servingFile = "apiserver"
	tokenFile   = "sa-signer"
	clientFile  = "client-ca.crt"
)

// write stores the pair as dir/name.crt and dir/name.key.
func (p keyPair) write(dir, name string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, name+".crt"), p.cert, 0o600),
		os.WriteFile(filepath.Join(dir, name+".key"), p.key, 0o600),
	)
}

// certAuthn makes envtest's API server trust the certificates of a pki's users.
type certAuthn struct{ clients *authority }

var _ envtest.Authn = certAuthn{}

// Configure implements envtest.Authn.
func (c certAuthn) Configure(dir string, args *envtest.Arguments) error {
	path := filepath.Join(dir, clientFile)
	args.Set("client-ca-file", path)
	return os.WriteFile(path, c.clients.pair.cert, 0o600)
}

// Start implements envtest.Authn.
func (certAuthn) Start() error { return nil }

// AddUser implements envtest.Authn.
func (c certAuthn) AddUser(user envtest.User, base *rest.Config) (*rest.Config, error) {
	pair, err := c.clients.clientCert(user.Name, user.Groups...)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate to user %s: %w", user.Name, err)
	}
	config := rest.CopyConfig(base)
	config.CertData, config.KeyData = pair.cert, pair.key
	return config, nil
}

// Stop implements envtest.Authn.
func (certAuthn) Stop() error { return nil }
