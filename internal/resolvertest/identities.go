// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolvertest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/internal/certs"
)

// Canaries: none of them may ever be printed.
const (
	CanaryToken    = "canary-token-5d41402abc4b2a76b9719d911017c592"
	CanaryPassword = "canary-password-7d793037a0760186574b0282f2f435e7"
)

// Identities returns the same two self-signed certificates every time.
var Identities = sync.OnceValue(func() [2]certs.Pair {
	return [2]certs.Pair{newIdentity("first"), newIdentity("second")}
})

// NotAfter is when the Identities expire.
var NotAfter = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

func newIdentity(name string) certs.Pair {
	return certs.SelfSign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:  NotAfter,
		IsCA:      true,
	})
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
		decoded, _ := pem.Decode(who.Key)
		secrets = append(secrets, Base64(decoded.Bytes)[:40], Base64(who.Key)[:40],
			fmt.Sprintf("%d", decoded.Bytes[:20]), fmt.Sprintf("%x", decoded.Bytes[:20]))
	}
	for _, secret := range secrets {
		for _, form := range []string{secret, Base64([]byte(secret)), fmt.Sprintf("%x", secret)} {
			if at := strings.Index(text, form); at >= 0 {
				require.FailNow(t, "a secret was printed", "%s", text[max(0, at-200):at])
			}
		}
	}
}
