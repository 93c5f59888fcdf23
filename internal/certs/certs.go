// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package certs makes the certificates of tests, and of the servers that tests
// and measurements use.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"time"
)

// Pair is a certificate and its key.
type Pair struct {
	Cert, Key []byte // in PEM

	both tls.Certificate
}

// TLS returns the pair as servers and clients present it.
func (p Pair) TLS() tls.Certificate { return p.both }

// Server returns the certificate of a server that is its own authority. It is
// valid today, and in the year 2000, where bubbles of testing/synctest begin.
func Server(name string, hosts ...string) Pair {
	return SelfSign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              hosts,
		NotBefore:             time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2190, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	})
}

// SelfSign returns a certificate that its own key has signed. It panics if the
// template is not valid; a serial number is made if it has none.
func SelfSign(template *x509.Certificate) Pair { return sign(template, nil) }

// Issue is SelfSign, with p as the authority that signs.
func (p Pair) Issue(template *x509.Certificate) Pair { return sign(template, &p) }

func sign(template *x509.Certificate, by *Pair) Pair {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.both.Leaf, by.both.PrivateKey
	}
	der := must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer))
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))}),
		both: tls.Certificate{
			Certificate: [][]byte{der},
			PrivateKey:  key,
			Leaf:        must(x509.ParseCertificate(der)),
		},
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic("certs: " + err.Error())
	}
	return value
}
