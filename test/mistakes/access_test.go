// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package mistakes

import (
	"encoding/base64"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/certs"
)

const secretLabel = "cluster.x-k8s.io/cluster-name"

// discovering stores the Secret of the cluster in the hub after a function has
// spoilt it, and runs a cache that discovers the clusters of Cluster API.
func discovering(spoil func(b *beginner, s *corev1.Secret, o *resolver.HubOptions)) func(b *beginner) error {
	return func(b *beginner) error {
		b.alone()
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace,
				Name:      key.Name + "-kubeconfig",
				Labels:    map[string]string{secretLabel: key.Name},
			},
			Data: map[string][]byte{"value": b.cluster.Kubeconfig()},
		}
		var o resolver.HubOptions
		spoil(b, secret, &o)
		b.hub.Store(secret)
		config := b.hub.Config()
		config.Dial = b.fleet.Dial
		hub, err := client.NewWithWatch(config, client.Options{})
		require.NoError(b, err)
		b.options.Resolver, err = resolver.ClusterAPI(hub, o)
		require.NoError(b, err)
		b.options.Dial, b.options.Discover = b.fleet.Dial, true
		b.started()

		return nil
	}
}

// rewriting replaces a text of the kubeconfig.
func rewriting(old, text string) func(b *beginner) error {
	return discovering(func(b *beginner, s *corev1.Secret, _ *resolver.HubOptions) {
		kubeconfig := string(s.Data["value"])
		require.Contains(b, kubeconfig, old)
		s.Data["value"] = []byte(strings.ReplaceAll(kubeconfig, old, text))
	})
}

// containing replaces the data of the Secret.
func containing(data func(kubeconfig []byte) map[string][]byte) func(b *beginner) error {
	return discovering(func(_ *beginner, s *corev1.Secret, _ *resolver.HubOptions) { s.Data = data(s.Data["value"]) })
}

const execPlugin = "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}\n    was:"

var ofAccess = map[string]mistake{
	"Secret without the label": {
		says("No cluster is known", secretLabel),
		discovering(func(_ *beginner, s *corev1.Secret, _ *resolver.HubOptions) { s.Labels = nil }),
	},
	"Secret with the label of another cluster": {
		says("No cluster is known", secretLabel),
		discovering(func(_ *beginner, s *corev1.Secret, _ *resolver.HubOptions) { s.Labels[secretLabel] = "b" }),
	},
	"Secrets of another namespace": {
		says("No cluster is known", secretLabel, "namespace default"),
		discovering(func(_ *beginner, _ *corev1.Secret, o *resolver.HubOptions) { o.Namespace = "default" }),
	},
	"hub that does not permit Secrets to be listed": {
		says("No cluster is known", "forbidden", "secrets"),
		discovering(func(b *beginner, _ *corev1.Secret, _ *resolver.HubOptions) {
			b.hub.Fail(clustercachetest.Status(403), clustercachetest.Resource("secrets"))
		}),
	},
	"Secret with another key": {
		says("fleet/a", "Secret fleet/a-kubeconfig", "key is missing: value"),
		containing(func(k []byte) map[string][]byte { return map[string][]byte{"config": k} }),
	},
	"empty kubeconfig": {
		says("fleet/a", "Secret fleet/a-kubeconfig", "invalid kubeconfig: is empty"),
		containing(func([]byte) map[string][]byte { return map[string][]byte{"value": {}} }),
	},
	"no kubeconfig": {
		says("fleet/a", "Secret fleet/a-kubeconfig", "is not a kubeconfig"),
		containing(func([]byte) map[string][]byte { return map[string][]byte{"value": []byte("TODO")} }),
	},
	"kubeconfig encoded twice": {
		says("fleet/a", "Secret fleet/a-kubeconfig", "encoded as base64 twice"),
		containing(func(k []byte) map[string][]byte {
			return map[string][]byte{"value": []byte(base64.StdEncoding.EncodeToString(k))}
		}),
	},
	"kubeconfig with a plugin": {
		says("fleet/a", "Secret fleet/a-kubeconfig", "user.exec", "Allow.Exec"),
		rewriting("token:", execPlugin),
	},
	"kubeconfig that names a file with a token": {
		says("fleet/a", "Secret fleet/a-kubeconfig", "user.tokenFile names a file", "Allow.Files"),
		rewriting("token:", "tokenFile:"),
	},
	"kubeconfig that names a file with a certificate": {
		says("fleet/a", "cluster.certificate-authority names a file", "Allow.Files"),
		rewriting("certificate-authority-data:", "certificate-authority:"),
	},
	"kubeconfig without credentials": {
		says("fleet/a", "user has no credentials", "Allow.Anonymous"),
		rewriting("token:", "was:"),
	},
	"kubeconfig that verifies nothing": {
		says("fleet/a", "cluster.insecure-skip-tls-verify", "Allow.InsecureTLS"),
		rewriting("certificate-authority-data:", "insecure-skip-tls-verify: true\n    was:"),
	},
	"http instead of https": {
		says("fleet/a", "cluster.server uses http", "Allow.HTTP"),
		rewriting("https://", "http://"),
	},
	"current context that does not exist": {
		says("fleet/a", "current-context is not in the list of contexts"),
		rewriting("current-context: fake", "current-context: prod"),
	},
	"two contexts and no current one": {
		says("fleet/a", "current-context is not set"),
		rewriting("current-context: fake", "\ncontexts:\n- {name: a, context: {cluster: fake, user: fake}}\n"+
			"- {name: b, context: {cluster: fake, user: fake}}\nwas: "),
	},
	"certificate authority of another cluster": {
		says("Disconnected", "fleet/a", "certificate"),
		discovering(func(_ *beginner, s *corev1.Secret, _ *resolver.HubOptions) {
			before, after, _ := strings.Cut(string(s.Data["value"]), "certificate-authority-data: ")
			_, after, _ = strings.Cut(after, "\n")
			of := base64.StdEncoding.EncodeToString(certs.Server("nobody").Cert)
			s.Data["value"] = []byte(before + "certificate-authority-data: " + of + "\n" + after)
		}),
	},
	"token that expired": {
		says("Disconnected", "fleet/a", "401"),
		discovering(func(b *beginner, _ *corev1.Secret, _ *resolver.HubOptions) { b.cluster.Revoke() }),
	},
	"server that is unreachable": {
		says("Disconnected", "fleet/a", "connection refused"),
		discovering(func(b *beginner, _ *corev1.Secret, _ *resolver.HubOptions) { b.cluster.Disconnect() }),
	},
	"server that does not answer": {
		says("Disconnected", "fleet/a", "Timeout"),
		discovering(func(b *beginner, _ *corev1.Secret, _ *resolver.HubOptions) { b.cluster.Hang() }),
	},
	"Secret without the label, of a cluster that is used": {
		says("fleet/a", "Secret fleet/a-kubeconfig", "secret not found", secretLabel),
		func(b *beginner) error {
			err := discovering(func(_ *beginner, s *corev1.Secret, _ *resolver.HubOptions) { s.Labels = nil })(b)
			require.NoError(b, err)
			b.options.Discover = false
			return b.started().Cluster(key).Engage()
		},
	},
}
