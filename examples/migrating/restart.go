// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package migrating

import (
	"bytes"
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// remoteLabel marks the Secrets that hold the kubeconfig of a remote cluster.
const remoteLabel = "example.com/remote"

// Restarting runs HandMade with the clusters that there are at the start. If a
// Secret changes, it ends the process, which starts anew.
func Restarting(ctx context.Context, mgr ctrl.Manager, namespace string, seen Seen, exit func()) error {
	secrets := &corev1.SecretList{}
	err := mgr.GetAPIReader().List(ctx, secrets, client.InNamespace(namespace), client.HasLabels{remoteLabel})
	if err != nil {
		return err
	}
	remotes, started := map[string]*rest.Config{}, map[string][]byte{}
	for _, secret := range secrets.Items {
		started[secret.Name] = secret.Data["kubeconfig"]
		// With the author of the Secret as the author of what is executed: plugins, files, proxies.
		if remotes[secret.Name], err = clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"]); err != nil {
			return err
		}
	}
	if err := HandMade(mgr, remotes, seen); err != nil {
		return err
	}

	return ctrl.NewControllerManagedBy(mgr).Named("restart").For(&corev1.Secret{}).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			now := &corev1.SecretList{}
			err := mgr.GetClient().List(ctx, now, client.InNamespace(namespace), client.HasLabels{remoteLabel})
			kubeconfigs := map[string][]byte{}
			for _, secret := range now.Items {
				kubeconfigs[secret.Name] = secret.Data["kubeconfig"]
			}
			if err == nil && !maps.EqualFunc(started, kubeconfigs, bytes.Equal) {
				exit() // every informer of every cluster lists again
			}
			return reconcile.Result{}, err
		}))
}

// Following has the same clusters, as they come, go and rotate their
// credentials.
func Following(mgr ctrl.Manager, namespace string) (*clustercache.ClusterCache, error) {
	selected, err := labels.Parse(remoteLabel)
	if err != nil {
		return nil, err
	}
	clusters, err := resolver.InHub(mgr.GetConfig(), resolver.Secrets, resolver.SecretOptions{
		HubOptions: resolver.HubOptions{Namespace: namespace, Selector: selected},
	})
	if err != nil {
		return nil, err
	}
	return clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: clusters, Discover: true})
}
