// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/certs"
)

// ServiceAccount is a user that authenticates with a bearer token.
type ServiceAccount struct {
	access

	namespace, name string

	// mu protects the fields below.
	mu    sync.Mutex
	token string
	bound string // name of the Secret to which the token is bound
}

// AddServiceAccount creates a service account, and its namespace if necessary,
// grants it the rules in all namespaces, and issues a token for it.
func (c *Cluster) AddServiceAccount(ctx context.Context, namespace, name string,
	rules ...rbacv1.PolicyRule) (*ServiceAccount, error) {
	s := &ServiceAccount{namespace: namespace, name: name, access: access{
		cluster: c,
		user:    "system:serviceaccount:" + namespace + ":" + name,
		role:    "testenv:serviceaccount:" + namespace + ":" + name,
		subject: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name},
	}}
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
	} {
		if err := c.Client().Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("add %s: %w", s.user, err)
		}
	}

	if err := s.Grant(ctx, rules...); err != nil {
		return nil, err
	}
	if err := s.Reissue(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Reissue issues a new token, which Config and Kubeconfig use from then on. The
// old token stays valid for an hour unless it is revoked before.
func (s *ServiceAccount) Reissue(ctx context.Context) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, GenerateName: s.name + "-"}}
	if err := s.cluster.Client().Create(ctx, secret); err != nil {
		return fmt.Errorf("issue a token to %s: %w", s.user, err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(3600)),
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1",
			Kind:       "Secret",
			Name:       secret.Name,
			UID:        secret.UID,
		},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}}
	if err := s.cluster.Client().SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("issue a token to %s: %w", s.user, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.bound = request.Status.Token, secret.Name

	return nil
}

// Revoke invalidates the current token and returns when the API server rejects
// it with 401. That may take ten seconds, because the server caches its last
// decision that long.
func (s *ServiceAccount) Revoke(ctx context.Context) error {
	s.mu.Lock()
	token, bound := s.token, s.bound
	s.mu.Unlock()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: bound}}
	if err := client.IgnoreNotFound(s.cluster.Client().Delete(ctx, secret)); err != nil {
		return fmt.Errorf("revoke the token of %s: %w", s.user, err)
	}
	anonymous := s.cluster.ownClient()
	anonymous.Transport.(*http.Transport).TLSClientConfig.Certificates = nil
	err := poll(ctx, 10*pollEvery, func() (bool, error) {
		resp, err := send(ctx, anonymous, "https://"+s.cluster.Addr()+"/version", token)
		if err != nil {
			return false, err
		}
		return resp.StatusCode == http.StatusUnauthorized, resp.Body.Close()
	})
	if err != nil {
		return fmt.Errorf("revoke the token of %s: %w", s.user, err)
	}
	return nil
}

// Token returns the current token.
func (s *ServiceAccount) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// Config returns a new config for the service account with its current token.
func (s *ServiceAccount) Config() *rest.Config {
	config := configFor(s.cluster.Addr(), s.cluster.CA(), certs.Pair{})
	config.BearerToken = s.Token()
	return config
}

// Kubeconfig returns a kubeconfig for the service account with all data inline.
func (s *ServiceAccount) Kubeconfig() []byte { return Kubeconfig(s.Config()) }
