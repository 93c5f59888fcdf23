// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

func kubeconfigOf(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      name + "-kubeconfig",
			Labels:    map[string]string{clusterv1.ClusterNameLabel: name},
		},
		Data: map[string][]byte{"value": []byte("none")},
	}
}

// TestSecretsAreWatchedWhereThatIsAllowed: a manager of one namespace may not
// list those of others.
func TestSecretsAreWatchedWhereThatIsAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		allowed   func(namespace string) bool
		lists     int64 // of all namespaces
		elsewhere int   // reports of a namespace without a Cluster
	}{
		"everywhere":            {func(string) bool { return true }, 2, 1},
		"in namespaces":         {func(namespace string) bool { return namespace != "" }, 1, 0},
		"in the only namespace": {func(namespace string) bool { return namespace == "fleet" }, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lists atomic.Int64
				check := func(opts []client.ListOption) error {
					o := (&client.ListOptions{}).ApplyOptions(opts)
					if o.Namespace == "" {
						lists.Add(1)
					}
					if !tc.allowed(o.Namespace) {
						return apierrors.NewForbidden(corev1.Resource("secrets"), "", nil)
					}
					return nil
				}
				hub := fake.NewClientBuilder().WithObjects(kubeconfigOf("fleet", "east")).
					WithInterceptorFuncs(interceptor.Funcs{
						List: func(
							ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption,
						) error {
							if err := check(opts); err != nil {
								return err
							}
							return c.List(ctx, list, opts...)
						},
						Watch: func(
							ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption,
						) (watch.Interface, error) {
							if o := (&client.ListOptions{}).ApplyOptions(opts); !tc.allowed(o.Namespace) {
								return nil, apierrors.NewForbidden(corev1.Resource("secrets"), "", nil)
							}
							return c.Watch(ctx, list, opts...)
						},
					}).Build()
				in := func(namespace string) (*resolver.HubResolver, error) {
					return resolver.ClusterAPI(hub, resolver.HubOptions{Namespace: namespace})
				}
				whole, err := in("")
				require.NoError(t, err)
				s := &secrets{hub: hub, log: logr.Discard(), whole: whole, in: in}

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				reports, ended := make(chan resolver.Cluster, 100), make(chan error, 1)
				namespaces := workqueue.NewTyped[string]()
				go func() { ended <- s.notify(ctx, namespaces, func(c resolver.Cluster) { reports <- c }) }()
				namespaces.Add("fleet")
				time.Sleep(time.Minute)
				namespaces.Add("fleet")
				synctest.Wait()
				require.NotEmpty(t, reports)
				for len(reports) > 0 {
					require.Equal(t, resolver.Cluster{Namespace: "fleet", Name: "east"}, <-reports)
				}

				require.NoError(t, hub.Create(t.Context(), kubeconfigOf("fleet", "west")))
				synctest.Wait()
				require.Equal(t, resolver.Cluster{Namespace: "fleet", Name: "west"}, <-reports)
				_, err = s.Resolve(ctx, resolver.Cluster{Namespace: "fleet", Name: "west"})
				require.ErrorContains(t, err, "kubeconfig")
				require.NoError(t, hub.Create(t.Context(), kubeconfigOf("other", "south")))
				synctest.Wait()
				require.Len(t, reports, tc.elsewhere)
				require.Equal(t, tc.lists, lists.Load())

				cancel()
				require.NoError(t, <-ended)
			})
		})
	}
}
