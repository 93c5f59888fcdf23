// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// administrator is the user of a cluster in memory who may do everything. The
// name of every user is also the user's token.
const administrator = "admin"

// rights are what the users of a cluster in memory may do. They apply to
// requests that begin afterwards, as those of a real API server.
type rights struct {
	mu    sync.Mutex
	rules map[string][]rbacv1.PolicyRule // by user
}

func newRights() *rights {
	everything := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	return &rights{rules: map[string][]rbacv1.PolicyRule{administrator: {everything}}}
}

// grant replaces the rules of a user.
func (r *rights) grant(user string, rules []rbacv1.PolicyRule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules[user] = slices.Clone(rules)
}

// authenticate returns the user who owns a token.
func (r *rights) authenticate(token string) (user string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok = r.rules[token]
	return token, ok
}

// intercept answers requests that no rule of their user allows. Every user may
// read what names no resource, such as discovery and the version.
func (r *rights) intercept(req *fakeapi.Request) *fakeapi.Fault {
	r.mu.Lock()
	rules := r.rules[req.User]
	r.mu.Unlock()
	allowed := func(rule rbacv1.PolicyRule) bool { return allows(rule, req) }
	if req.Resource == "" || slices.ContainsFunc(rules, allowed) {
		return nil
	}
	return &fakeapi.Fault{Err: fakeapi.Forbidden(req)}
}

// allows reports whether a rule allows a request for a resource.
func allows(rule rbacv1.PolicyRule, req *fakeapi.Request) bool {
	resource := req.Resource
	if req.Subresource != "" {
		resource += "/" + req.Subresource
	}
	name := req.Name
	if name == "" {
		name = req.Selected
	}
	return names(rule.Verbs, req.Verb) && names(rule.APIGroups, req.Group) && names(rule.Resources, resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, name))
}

// names reports whether a list of a rule names a value, or everything.
func names(list []string, value string) bool {
	return slices.Contains(list, value) || slices.Contains(list, rbacv1.VerbAll)
}
