// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"strings"

	"github.com/fleetcache/fleetcache/clustercache/resolver/internal/digest"
)

// Change is a set of the parts in which two accesses differ.
type Change uint8

const (
	// ChangedToken means a different bearer token, user name or password.
	ChangedToken Change = 1 << iota
	// ChangedClientCert means a different client certificate or key.
	ChangedClientCert
	// ChangedTrust means different trusted certificates, a different expected
	// server name, or verification turned on or off.
	ChangedTrust
	// ChangedEndpoint means a different URL. Only the cluster's UID shows
	// whether another cluster answers there.
	ChangedEndpoint
	// ChangedProxy means a different proxy.
	ChangedProxy
	// ChangedOther means any other difference: impersonation, credential
	// plugin, compression.
	ChangedOther
)

// Diff returns the parts in which two accesses differ; 0 if and only if their
// revisions are equal.
func Diff(from, to Access) Change {
	var before, after digest.Parts
	if from.open != nil {
		before = from.open().parts
	}
	if to.open != nil {
		after = to.open().parts
	}
	var out Change
	for i := range before {
		if before[i] != after[i] {
			out |= 1 << i
		}
	}

	return out
}

// Has reports whether all of the given changes are in the set.
func (c Change) Has(changes Change) bool { return c&changes == changes }

// String lists the changed parts.
func (c Change) String() string {
	var out []string
	for i, name := range [digest.PartCount]string{
		"token", "client certificate", "trust", "endpoint", "proxy", "other",
	} {
		if c.Has(1 << i) {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
