// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const demoNamespace = "demo"

// newSite returns a site, whose reconcile takes a time if that is given.
func newSite(name, takes string) *unstructured.Unstructured {
	spec := map[string]any{"title": name}
	if takes != "" {
		spec["takes"] = takes
	}
	site := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	site.SetGroupVersionKind(siteKind)
	site.SetNamespace(demoNamespace)
	site.SetName(name)
	return site
}

func newTheme(color string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: demoNamespace, Name: themeName},
		Data:       map[string]string{"color": color},
	}
}
