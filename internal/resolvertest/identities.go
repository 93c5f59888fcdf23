// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolvertest

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
	CanaryToken    = "canary-token-5d41402abc4b2a76b9719d911017c592"
	CanaryPassword = "canary-password-7d793037a0760186574b0282f2f435e7"
)

// Identity is a self-signed certificate with its key.
type Identity struct{ Cert, Key []byte }

// Identities returns the same two identities every time.
var Identities = sync.OnceValue(func() [2]Identity {
	return [2]Identity{newIdentity("first"), newIdentity("second")}
})

// NotAfter is when every Identity expires.
var NotAfter = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

func newIdentity(name string) Identity {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     NotAfter,
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
	return Identity{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// Base64 returns data in base64.
func Base64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// Kubeconfig writes a kubeconfig with one context; cluster and user are YAML
// flow mappings without their braces.
func Kubeconfig(cluster, user string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {%s}}]
users: [{name: u, user: {%s}}]
`, cluster, user)
}

// TokenConfig returns a kubeconfig with a token.
func TokenConfig(token string) []byte {
	return Kubeconfig("server: https://c.example", "token: "+token)
}

// TokenData returns a Secret's data: under a key, a kubeconfig with a token.
func TokenData(key, token string) map[string]string {
	return map[string]string{key: string(TokenConfig(token))}
}

// Secret returns a Secret.
func Secret(namespace, name string, labels map[string]string, data map[string]string) *corev1.Secret {
	out := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	out.Data = map[string][]byte{}
	for key, value := range data {
		out.Data[key] = []byte(value)
	}
	return out
}

// RequireNoCanary fails if a text contains a secret.
func RequireNoCanary(t testing.TB, text string) {
	t.Helper()
	secrets := []string{CanaryToken, CanaryPassword}
	for _, who := range Identities() {
		for _, block := range [][]byte{who.Key} {
			decoded, _ := pem.Decode(block)
			secrets = append(secrets, Base64(decoded.Bytes)[:40], Base64(block)[:40],
				fmt.Sprintf("%d", decoded.Bytes[:20]), fmt.Sprintf("%x", decoded.Bytes[:20]))
		}
	}
	for _, secret := range secrets {
		for _, form := range []string{secret, Base64([]byte(secret)), fmt.Sprintf("%x", secret)} {
			if at := strings.Index(text, form); at >= 0 {
				require.FailNow(t, "a secret was printed", "%s", text[max(0, at-200):at])
			}
		}
	}
}
