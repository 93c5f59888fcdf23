// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watcher is an informer library connected to one cluster. Its informers run
// until the process ends, since each measurement has a process of its own.
type watcher interface {
	// watch starts one informer of the kind for each namespace, where the empty
	// string means all, and returns when all have synced.
	watch(ctx context.Context, k kind, namespaces ...string) error
	// handle adds a handler that does nothing to each informer of the last
	// watch.
	handle(ctx context.Context) error
	// count returns how many objects the informers of the last watch hold.
	count(ctx context.Context) (int, error)
}

// subject is a library to measure.
type subject struct {
	name string
	open func(*rest.Config) (watcher, error)
}

// Names of subjects that bounds refer to.
const (
	ours           = "fleetcache"
	oursRest       = "fleetcache/rest.Config"
	clientGo       = "client-go/dynamic"
	crUnstructured = "controller-runtime/unstructured"
	crStripped     = "controller-runtime/unstructured-stripped"
	crTyped        = "controller-runtime/typed"
	crMetadata     = "controller-runtime/metadata"
)

// single are the libraries as informers of one cluster.
var single = []subject{
	{ours, openSeam},
	{oursRest, openRest},
	{clientGo, openClientGo},
	{crUnstructured, openRuntime(asUnstructured, false)},
	{crStripped, openRuntime(asUnstructured, true)},
	{crTyped, openRuntime(asTyped, false)},
	{crMetadata, openRuntime(asMetadata, false)},
}

func subjectNamed(name string) (subject, error) {
	i := slices.IndexFunc(single, func(s subject) bool { return s.name == name })
	if i < 0 {
		return subject{}, fmt.Errorf("no subject %q", name)
	}
	return single[i], nil
}

// kind is a kind with its names.
type kind struct {
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	// typed and typedList return empty Go values.
	typed     func() client.Object
	typedList func() client.ObjectList
}

var (
	pods = kind{
		resource:  corev1.SchemeGroupVersion.WithResource("pods"),
		kind:      corev1.SchemeGroupVersion.WithKind("Pod"),
		typed:     func() client.Object { return &corev1.Pod{} },
		typedList: func() client.ObjectList { return &corev1.PodList{} },
	}
	configMaps = kind{
		resource:  corev1.SchemeGroupVersion.WithResource("configmaps"),
		kind:      corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		typed:     func() client.Object { return &corev1.ConfigMap{} },
		typedList: func() client.ObjectList { return &corev1.ConfigMapList{} },
	}
	deployments = kind{
		resource:  appsv1.SchemeGroupVersion.WithResource("deployments"),
		kind:      appsv1.SchemeGroupVersion.WithKind("Deployment"),
		typed:     func() client.Object { return &appsv1.Deployment{} },
		typedList: func() client.ObjectList { return &appsv1.DeploymentList{} },
	}
	secrets = kind{
		resource:  corev1.SchemeGroupVersion.WithResource("secrets"),
		kind:      corev1.SchemeGroupVersion.WithKind("Secret"),
		typed:     func() client.Object { return &corev1.Secret{} },
		typedList: func() client.ObjectList { return &corev1.SecretList{} },
	}
)

// mapper returns a mapper that knows the kinds without discovery, so that the
// REST mapper of a peer, which takes up to 0.9 MB per cluster, does not count
// against the peer.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion})
	for _, k := range []kind{pods, configMaps, deployments, secrets} {
		m.Add(k.kind, meta.RESTScopeNamespace)
		m.Add(k.kind.GroupVersion().WithKind(k.kind.Kind+"List"), meta.RESTScopeNamespace)
	}
	return m
}

// knock makes the client's connection in advance. Otherwise a subject would be
// charged for it, or would open several at once.
func knock(ctx context.Context, c *http.Client, base string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/version", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("open a connection: %w", err)
	}
	_, err = io.Copy(io.Discard, resp.Body)

	return errors.Join(err, resp.Body.Close())
}
