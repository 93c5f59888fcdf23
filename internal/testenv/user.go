// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fleetcache/fleetcache/internal/certs"
)

// access holds the rights of one user in a cluster, granted by a ClusterRole of
// its own.
type access struct {
	cluster *Cluster
	role    string         // name of the ClusterRole and of the binding
	subject rbacv1.Subject // the subject that the binding names
	user    string         // the user name that the authorizer sees
}

// Grant grants the user the rules in all namespaces, replacing those of an
// earlier Grant. It returns when the API server applies them.
func (a *access) Grant(ctx context.Context, rules ...rbacv1.PolicyRule) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: a.role}}
	_, err := controllerutil.CreateOrUpdate(ctx, a.cluster.Client(), role, func() error {
		role.Rules = rules
		return nil
	})
	if err != nil {
		return fmt.Errorf("grant rights to %s: %w", a.user, err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: a.role}}
	_, err = controllerutil.CreateOrUpdate(ctx, a.cluster.Client(), binding, func() error {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: a.role}
		binding.Subjects = []rbacv1.Subject{a.subject}
		return nil
	})
	if err != nil {
		return fmt.Errorf("grant rights to %s: %w", a.user, err)
	}
	return a.await(ctx, rules, true)
}

// Deny revokes all granted rights; the user can still authenticate. It returns
// when the API server applies that.
func (a *access) Deny(ctx context.Context) error {
	role := &rbacv1.ClusterRole{}
	if err := a.cluster.Client().Get(ctx, client.ObjectKey{Name: a.role}, role); err != nil {
		return client.IgnoreNotFound(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: a.role}}
	for _, obj := range []client.Object{binding, role} {
		if err := client.IgnoreNotFound(a.cluster.Client().Delete(ctx, obj)); err != nil {
			return fmt.Errorf("deny rights to %s: %w", a.user, err)
		}
	}
	return a.await(ctx, role.Rules, false)
}

// await waits until the authorizer, which watches rules, allows or denies the
// first operation that each rule names.
func (a *access) await(ctx context.Context, rules []rbacv1.PolicyRule, allowed bool) error {
	for _, rule := range rules {
		err := poll(ctx, pollEvery, func() (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: question(rule)}
			review.Spec.User = a.user
			err := a.cluster.Client().Create(ctx, review)
			return review.Status.Allowed == allowed, err
		})
		if err != nil {
			return fmt.Errorf("ask for the rights of %s: %w", a.user, err)
		}
	}

	return nil
}

// question returns the first operation that a rule names.
func question(rule rbacv1.PolicyRule) authorizationv1.SubjectAccessReviewSpec {
	first := func(values []string) string {
		if len(values) == 0 {
			return ""
		}
		return values[0]
	}
	if len(rule.NonResourceURLs) > 0 {
		return authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{
			Verb: first(rule.Verbs), Path: first(rule.NonResourceURLs),
		}}
	}
	return authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb:     first(rule.Verbs),
		Group:    first(rule.APIGroups),
		Resource: first(rule.Resources),
		Name:     first(rule.ResourceNames),
	}}
}

// User is a user that authenticates with a client certificate.
type User struct {
	access

	// mu protects pair.
	mu   sync.Mutex
	pair certs.Pair
}

// AddUser creates a user with the rules in all namespaces, in addition to the
// rights of every user.
func (c *Cluster) AddUser(ctx context.Context, name string, rules ...rbacv1.PolicyRule) (*User, error) {
	u := &User{pair: c.pki.clientCert(time.Now().Add(validity), name), access: access{
		cluster: c,
		user:    name,
		role:    "testenv:user:" + name,
		subject: rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name},
	}}
	if err := u.Grant(ctx, rules...); err != nil {
		return nil, err
	}
	return u, nil
}

// Reissue issues a new certificate that expires at the given time. Config and
// Kubeconfig use it from then on. The old certificate stays valid, too.
func (u *User) Reissue(notAfter time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pair = u.cluster.pki.clientCert(notAfter, u.user)
}

// Config returns a new config for the user with its current certificate.
func (u *User) Config() *rest.Config {
	u.mu.Lock()
	defer u.mu.Unlock()
	return configFor(u.cluster.Addr(), u.cluster.CA(), u.pair)
}

// Kubeconfig returns a kubeconfig for the user with all data inline.
func (u *User) Kubeconfig() []byte { return Kubeconfig(u.Config()) }
