// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"time"
)

// domain contains all clusters.
const domain = "fleet.test"

// identity is the certificate of all fake API servers, which clients trust.
type identity struct {
	certificate tls.Certificate
	ca          []byte
}

// servers is created once per process. It is valid in the year 2000, where
// bubbles begin, and today.
var servers = sync.OnceValue(func() identity {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic("clustercachetest: " + err.Error())
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "clustercachetest"},
		DNSNames:              []string{"*." + domain},
		NotBefore:             time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2190, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic("clustercachetest: " + err.Error())
	}

	return identity{
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		ca:          pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}
})
