// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// SimpleCRD returns a definition of a kind with one version, v1. Its objects
// have metadata and a status subresource and may have any other fields. The
// plural is the kind in lower case with an s. Default scope: Namespaced.
func SimpleCRD(group, kind string, scope ...apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind)
	plural := singular + "s"
	where := apiextensionsv1.NamespaceScoped
	if len(scope) > 0 {
		where = scope[0]
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: where,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural:   plural,
				Singular: singular,
				Kind:     kind,
				ListKind: kind + "List",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name:    "v1",
				Served:  true,
				Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: new(true),
					},
				},
			}},
		},
	}
}

// InstallCRDs creates the definitions, or updates existing ones, and returns
// when discovery contains their kinds and the kinds can be listed. It does not
// modify its arguments.
func (c *Cluster) InstallCRDs(ctx context.Context, crds ...*apiextensionsv1.CustomResourceDefinition) error {
	if err := c.installCRDs(ctx, crds); err != nil {
		return fmt.Errorf("install CRDs in cluster %s: %w", c.name, err)
	}
	return nil
}

func (c *Cluster) installCRDs(ctx context.Context, crds []*apiextensionsv1.CustomResourceDefinition) error {
	config := c.Config()
	config.UserAgent = userAgent
	copies := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(crds))
	for _, crd := range crds {
		copies = append(copies, crd.DeepCopy())
	}
	if err := envtest.CreateCRDs(config, copies); err != nil {
		return err
	}
	err := envtest.WaitForCRDs(config, copies,
		envtest.CRDInstallOptions{MaxTime: startTimeout, PollInterval: 5 * pollEvery})
	if err != nil {
		return err
	}
	return c.served(ctx, copies)
}

// served waits until each kind can be listed, which its presence in discovery
// does not guarantee.
func (c *Cluster) served(ctx context.Context, crds []*apiextensionsv1.CustomResourceDefinition) error {
	client := c.ownClient()
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			url := fmt.Sprintf("https://%s/apis/%s/%s/%s?limit=1", c.Addr(), crd.Spec.Group, version.Name,
				crd.Spec.Names.Plural)
			if err := answers(ctx, pollEvery, client, url); err != nil {
				return err
			}
		}
	}

	return nil
}
