// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Canaries: none of them may ever be printed.
const (
	canaryToken    = "canary-token-5d41402abc4b2a76b9719d911017c592"
	canaryPassword = "canary-password-7d793037a0760186574b0282f2f435e7"
)

// identity is a self-signed certificate with its key.
type identity struct{ cert, key []byte }

var identities = sync.OnceValue(func() [2]identity {
	return [2]identity{newIdentity("first"), newIdentity("second")}
})

var notAfter = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

func newIdentity(name string) identity {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     notAfter,
		IsCA:         true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return identity{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// kubeconfig writes a kubeconfig with one context; cluster and user are YAML
// flow mappings without their braces.
func kubeconfig(cluster, user string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {%s}}]
users: [{name: u, user: {%s}}]
`, cluster, user)
}

func tokenConfig(token string) []byte {
	return kubeconfig("server: https://c.example", "token: "+token)
}

func secret(namespace, name string, labels map[string]string, data map[string]string) *corev1.Secret {
	out := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	out.Data = map[string][]byte{}
	for key, value := range data {
		out.Data[key] = []byte(value)
	}
	return out
}

// requireNoCanary fails if a text contains a secret.
func requireNoCanary(t testing.TB, text string) {
	t.Helper()
	secrets := []string{canaryToken, canaryPassword}
	for _, who := range identities() {
		for _, block := range [][]byte{who.key} {
			decoded, _ := pem.Decode(block)
			secrets = append(secrets, b64(decoded.Bytes)[:40], b64(block)[:40], fmt.Sprintf("%d", decoded.Bytes[:20]), fmt.Sprintf("%x", decoded.Bytes[:20]))
		}
	}
	for _, secret := range secrets {
		for _, form := range []string{secret, b64([]byte(secret)), fmt.Sprintf("%x", secret)} {
			if at := strings.Index(text, form); at >= 0 {
				require.FailNow(t, "a secret was printed", "%s", text[max(0, at-200):at])
			}
		}
	}
}
