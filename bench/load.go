// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
)

const (
	// writers is how many pods are written at the same time.
	writers = 16
	// touched is the fraction of pods that were annotated by hand: one in
	// touched.
	touched = 10
	// sampled is how many pods are used to determine the mean size.
	sampled = 200
)

// makeNamespaces creates the namespaces that do not exist.
func makeNamespaces(ctx context.Context, config *rest.Config, names []string) error {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := c.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}

	return nil
}

// makeTeams creates the namespaces of the objects.
func makeTeams(ctx context.Context, config *rest.Config) error {
	var names []string
	for team := range objects.Teams {
		names = append(names, objects.NamespaceOf(team))
	}
	return makeNamespaces(ctx, config, names)
}

// eventually tries until there is no error, or for half a minute.
func eventually(ctx context.Context, try func() error) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := try()
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// load writes n pods as a cluster does, so that the server keeps managedFields
// of all the components that write pods.
func load(ctx context.Context, config *rest.Config, n int) error {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := makeTeams(ctx, config); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range n {
		g.Go(func() error { return write(ctx, c, i) })
	}

	return g.Wait()
}

// write writes one pod: the controller creates it, the kubelet reports its
// status, and kubectl annotates some pods.
func write(ctx context.Context, c kubernetes.Interface, i int) error {
	p := objects.Generator{}.Pod(i)
	client := c.CoreV1().Pods(p.Namespace)
	if _, err := client.Create(ctx, p, metav1.CreateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		return fmt.Errorf("create pod %d: %w", i, err)
	}
	status, err := json.Marshal(map[string]any{"status": p.Status})
	if err != nil {
		return err
	}
	by := metav1.PatchOptions{FieldManager: "kubelet"}
	if _, err := client.Patch(ctx, p.Name, types.StrategicMergePatchType, status, by, "status"); err != nil {
		return fmt.Errorf("report status of pod %d: %w", i, err)
	}
	if i%touched != 0 {
		return nil
	}
	note := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/ticket":"OPS-%d"}}}`, i)
	by.FieldManager = "kubectl-annotate"
	if _, err := client.Patch(ctx, p.Name, types.MergePatchType, note, by); err != nil {
		return fmt.Errorf("annotate pod %d: %w", i, err)
	}
	return nil
}

// sizes returns the mean JSON size of the pods, with and without managedFields.
func sizes(ctx context.Context, config *rest.Config) (full, stripped float64, err error) {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, 0, err
	}
	list, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: sampled})
	if err != nil {
		return 0, 0, err
	}

	for i := range list.Items {
		p := &list.Items[i]
		p.APIVersion, p.Kind = "v1", "Pod"
		for _, sum := range []*float64{&full, &stripped} {
			b, err := json.Marshal(p)
			if err != nil {
				return 0, 0, err
			}
			*sum += float64(len(b)) / float64(len(list.Items))
			p.ManagedFields = nil
		}
	}

	return full, stripped, nil
}
