// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// TestOnlyAnAPIServerListsItsChecks: what gateways answer in the place of a
// server they cannot reach is not about its health.
func TestOnlyAnAPIServerListsItsChecks(t *testing.T) {
	for text, want := range map[string][]string{
		"[+]ping ok\n[-]etcd failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n": {"etcd"},
		"[-]etcd failed: reason withheld\r\n[-]shutdown failed: reason withheld\r\n\r\n":     {"etcd", "shutdown"},
		"[+]log excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"x\"\n" +
			"[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\nlivez check failed": {
			"poststarthook/rbac/bootstrap-roles"},

		"":                        nil,
		"ok":                      nil,
		"readyz check failed":     nil,
		"[+]ping ok":              nil,
		"[-]etcd":                 nil,
		"[-] failed":              nil,
		"no healthy upstream":     nil,
		"service unavailable\n":   nil,
		"[-]etcd failed\n<html>":  nil,
		"<html>\n[-]etcd failed":  nil,
		"{\"kind\":\"Status\"}\n": nil,
		"upstream connect error or disconnect/reset before headers. reset reason: connection failure": nil,
	} {
		require.Equal(t, want, failingChecks(text), "%q", text)
	}
}

func TestFailingChecksAreNamedWithoutForeignText(t *testing.T) {
	answered := &transport.Error{
		Cluster: "c",
		Op:      "GET /readyz",
		Class:   transport.Server,
		Err:     transport.ErrRefused,
	}
	tell := func(names ...string) error {
		var body strings.Builder
		for _, name := range names {
			body.WriteString("[-]" + name + " failed: reason withheld\n")
		}
		return diagnose(transport.Proof{Body: []byte(body.String())}, answered)
	}
	err := tell("etcd", "poststarthook/start-openapiv3-controller", "kms-provider-0")
	require.EqualError(t, err, `cluster "c": GET /readyz: refused by policy, failing checks: etcd, `+
		`poststarthook/start-openapiv3-controller, kms-provider-0`)
	require.ErrorIs(t, err, transport.ErrRefused)
	require.Equal(t, transport.Server, transport.Classify(err))
	class, reason := classify(err)
	require.Equal(t, phase.Trouble, class)
	require.Equal(t, ReasonUnhealthy, reason)
	require.True(t, failure("a", err).Alive)

	for _, name := range []string{"eyJhbGciOi", "a b", "8f14e45fceea167a", "-x", strings.Repeat("x", 65), "\x1b[31m"} {
		require.ErrorContains(t, tell(name), "failing checks: one of an unusual name", name)
		require.NotContains(t, tell(name).Error(), name)
	}
	many := strings.Fields(strings.Repeat("check ", 1000))
	require.ErrorContains(t, tell(many...), "check, check, check, check, check, …")
	require.Less(t, len(tell(many...).Error()), 200)

	require.Equal(t, error(answered), diagnose(transport.Proof{Body: []byte("no healthy upstream")}, answered))
	require.NoError(t, diagnose(transport.Proof{Body: []byte("ok")}, nil))
	require.False(t, failure("a", answered).Alive)
}
