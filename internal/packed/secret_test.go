// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/wire"
)

var secretGVK = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}

// Sizes of the parts of a TLS Secret, in DER and in PEM.
const (
	certificateBytes = 880
	keyBytes         = 1192
	pemLine          = 64 // the width of lines
)

// randomBytes returns n bytes that do not shrink.
func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 15))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.IntN(256))
	}
	return b
}

// inLines returns the base64 of random bytes in lines.
func inLines(seed uint64, n, width int, gap string) string {
	text := base64.StdEncoding.EncodeToString(randomBytes(seed, n))
	var lines []string
	for len(text) > 0 {
		lines = append(lines, text[:min(width, len(text))])
		text = text[len(lines[len(lines)-1]):]
	}
	return strings.Join(lines, gap)
}

// pemOf returns random bytes in PEM.
func pemOf(seed uint64, label string, n int) string {
	return "-----BEGIN " + label + "-----\n" + inLines(seed, n, pemLine, "\n") + "\n-----END " + label + "-----\n"
}

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// secret returns a Secret with data that are in base64 already.
func secret(i int, kind string, data ...string) []byte {
	var members, fields strings.Builder
	for n := 0; n < len(data); n += 2 {
		fmt.Fprintf(&members, `,%q:%q`, data[n], data[n+1])
		fmt.Fprintf(&fields, `,"f:%s":{}`, data[n])
	}
	return fmt.Appendf(nil, `{"kind":"Secret","apiVersion":"v1","metadata":{`+
		`"name":"checkout-%d-tls","namespace":"team-%d","uid":"00000000-0000-4000-8000-%012d",`+
		`"resourceVersion":"%d","creationTimestamp":"2026-11-%02dT10:11:12Z",`+
		`"labels":{"app.kubernetes.io/instance":"checkout-%d","app.kubernetes.io/name":"checkout-%d",`+
		`"app.kubernetes.io/part-of":"shop"},"annotations":{"cert-manager.io/certificate-name":"checkout-%d",`+
		`"cert-manager.io/common-name":"checkout-%d.example.com","cert-manager.io/issuer-kind":"ClusterIssuer",`+
		`"cert-manager.io/issuer-name":"internal"},"managedFields":[{"manager":"kube-controller-manager",`+
		`"operation":"Update","apiVersion":"v1","time":"2026-11-%02dT10:11:12Z","fieldsType":"FieldsV1",`+
		`"fieldsV1":{"f:data":{".":{}%s},"f:metadata":{"f:annotations":{".":{},`+
		`"f:cert-manager.io/certificate-name":{},"f:cert-manager.io/common-name":{},`+
		`"f:cert-manager.io/issuer-kind":{},"f:cert-manager.io/issuer-name":{}},"f:labels":{".":{},`+
		`"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/part-of":{}}},`+
		`"f:type":{}}}]},"data":{%s},"type":%q}`, i, i%17, i, i+1000, 1+i%28, i, i, i, i, 1+i%28, &fields,
		members.String()[1:], kind)
}

// tlsSecret returns a Secret with two certificates and a key.
func tlsSecret(i int) []byte {
	seed := uint64(3 * i)
	return secret(i, "kubernetes.io/tls",
		"ca.crt", inBase64(pemOf(seed, "CERTIFICATE", certificateBytes)),
		"tls.crt", inBase64(pemOf(seed+1, "CERTIFICATE", certificateBytes)),
		"tls.key", inBase64(pemOf(seed+2, "RSA PRIVATE KEY", keyBytes)))
}

// opaqueSecret returns a Secret with random data.
func opaqueSecret(i int) []byte {
	return secret(i, "Opaque", "data", base64.StdEncoding.EncodeToString(randomBytes(uint64(i), 3<<10)))
}

// trainedBy returns a kind that has packed enough objects for a dictionary, and
// what must be kept for it.
func trainedBy(t testing.TB, c *Codec, gvk schema.GroupVersionKind, object func(i int) []byte) *Kind {
	t.Helper()
	k := c.Kind(gvk)
	var keep []*Object
	for i := range samples {
		keep = append(keep, mustPack(t, c, k, object(10_000+i)))
	}
	runtime.KeepAlive(keep)
	require.NotNil(t, k.dict.newest.Load())
	return k
}

// BenchmarkSecrets packs and reads Secrets with certificates and with random
// data, and ConfigMaps with a certificate.
func BenchmarkSecrets(b *testing.B) {
	for _, of := range []struct {
		name   string
		gvk    schema.GroupVersionKind
		object func(i int) []byte
		typed  func() apiruntime.Object
	}{
		{"TLS", secretGVK, tlsSecret, func() apiruntime.Object { return new(corev1.Secret) }},
		{"Opaque", secretGVK, opaqueSecret, func() apiruntime.Object { return new(corev1.Secret) }},
		{"ConfigMap", configMapGVK, func(i int) []byte {
			return configMap(i, pemOf(uint64(i), "CERTIFICATE", certificateBytes))
		}, func() apiruntime.Object { return new(corev1.ConfigMap) }},
	} {
		c := NewCodec()
		k := trainedBy(b, c, of.gvk, of.object)
		items := make([]wire.Item, 64)
		objects := make([]*Object, len(items))
		size := 0
		for i := range items {
			it, err := wire.Scan(of.object(i))
			require.NoError(b, err)
			items[i] = it
			objects[i], err = c.Pack(k, it)
			require.NoError(b, err)
			size += objects[i].Size()
		}
		run := func(name string, f func(i int)) {
			b.Run(of.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					f(i % len(items))
					i++
				}
				b.ReportMetric(float64(size)/float64(len(items)), "B/object")
			})
		}
		run("Pack", func(i int) {
			_, err := c.pack(k, items[i])
			must(err)
		})
		run("Unstructured", func(i int) { must(objects[i].Into(new(unstructured.Unstructured))) })
		run("Typed", func(i int) { must(objects[i].Into(of.typed())) })
		run("Metadata", func(i int) { must(objects[i].Into(new(metav1.PartialObjectMetadata))) })
	}
}
