// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// WidgetGroup is the API group of the kind that a CustomResourceDefinition
// defines.
const WidgetGroup = "bench.example.com"

// settingsPerFile is how many settings the file of a ConfigMap has.
const settingsPerFile = 30

func (g Generator) appMeta(i int, suffix string) metav1.ObjectMeta {
	name := appName(i)
	return metav1.ObjectMeta{
		Name:      name + suffix,
		Namespace: NamespaceOf(i),
		Labels:    appLabels(name),
	}
}

// ConfigMap returns ConfigMap number i: a configuration file of 1 KiB and some
// variables.
func (g Generator) ConfigMap(i int) *corev1.ConfigMap {
	own := g.random(ownOfConfigMap, i)
	return &corev1.ConfigMap{
		ObjectMeta: g.appMeta(i, "-config"),
		Data: map[string]string{
			"config.yaml": settings(own),
			"LOG_LEVEL":   "info",
			"ENDPOINT":    fmt.Sprintf("https://%s.example.com:%d/v1", word(own, 12), 1024+own.IntN(60000)),
		},
	}
}

// names are words that occur in the settings of programs.
var names = strings.Fields(`server database cache timeout retries limit pool size address password path level
	format enabled interval window buffer queue workers region bucket prefix tenant feature metrics tracing`)

func settings(own *rand.Rand) string {
	var b strings.Builder
	for range settingsPerFile {
		one, other := names[own.IntN(len(names))], names[own.IntN(len(names))]
		switch own.IntN(3) {
		case 0:
			fmt.Fprintf(&b, "%s-%s: %d\n", one, other, own.IntN(100000))
		case 1:
			fmt.Fprintf(&b, "%s-%s: %ds\n", one, other, own.IntN(600))
		default:
			fmt.Fprintf(&b, "%s-%s: %q\n", one, other, word(own, 4+own.IntN(28)))
		}
	}

	return b.String()
}

// Secret returns Secret number i, with 3 KiB of random data.
func (g Generator) Secret(i int) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: g.appMeta(i, "-credentials"),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{"data": randomBytes(g.random(ownOfSecret, i), secretBytes)},
	}
}

// Sizes of the parts of a TLS Secret, in DER: certificates and a key of RSA
// with 2,048 bits.
const (
	certificateBytes = 880
	keyBytes         = 1192
)

// TLSSecret returns TLS Secret number i: a certificate with that of its
// authority, and a key. They are random data in the form of PEM.
func (g Generator) TLSSecret(i int) *corev1.Secret {
	own := g.random(ownOfTLSSecret, i)
	s := &corev1.Secret{
		ObjectMeta: g.appMeta(i, "-tls"),
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			"tls.crt": randomPEM(own, "CERTIFICATE", certificateBytes),
			"tls.key": randomPEM(own, "RSA PRIVATE KEY", keyBytes),
			"ca.crt":  randomPEM(own, "CERTIFICATE", certificateBytes),
		},
	}
	s.Annotations = map[string]string{
		"cert-manager.io/certificate-name": appName(i),
		"cert-manager.io/common-name":      appName(i) + ".example.com",
		"cert-manager.io/issuer-kind":      "ClusterIssuer",
		"cert-manager.io/issuer-name":      "internal",
	}

	return s
}

// Widget returns an object of the custom kind, number i.
func (g Generator) Widget(i int) *unstructured.Unstructured {
	own, meta := g.random(ownOfWidget, i), g.appMeta(i, "")
	labels := map[string]any{}
	for k, v := range meta.Labels {
		labels[k] = v
	}
	var rules []any
	for range 4 {
		rules = append(rules, map[string]any{
			"host":     word(own, 10) + ".example.com",
			"path":     "/" + word(own, 8),
			"weight":   int64(own.IntN(100)),
			"upstream": map[string]any{"service": word(own, 12), "port": int64(1024 + own.IntN(60000))},
		})
	}
	condition := func(kind, reason string) any {
		return map[string]any{
			"type":               kind,
			"status":             "True",
			"reason":             reason,
			"message":            reason + " at " + hex(own, 12),
			"observedGeneration": int64(1),
			"lastTransitionTime": moment(own).UTC().Format("2006-01-02T15:04:05Z"),
		}
	}

	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": WidgetGroup + "/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": meta.Name, "namespace": meta.Namespace, "labels": labels},
		"spec": map[string]any{
			"class":    "standard",
			"replicas": int64(1 + own.IntN(9)),
			"rules":    rules,
			"template": map[string]any{"image": "registry.example.com/widget:v1." + fmt.Sprint(own.IntN(50))},
		},
		"status": map[string]any{
			"address":    fmt.Sprintf("10.%d.%d.%d", own.IntN(255), own.IntN(255), own.IntN(255)),
			"conditions": []any{condition("Accepted", "Valid"), condition("Ready", "Programmed")},
		},
	}}
}
