// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"cmp"
	"time"
)

// Options configures a Mapper. The zero value is valid.
type Options struct {
	// NegativeTTL is how long a discovery remains valid as proof that a kind
	// does not exist. There is at most one discovery in this time, however many
	// unknown kinds are looked up. Default 10 s.
	NegativeTTL time.Duration
	// Timeout bounds one discovery. Default 30 s.
	Timeout time.Duration
}

const (
	defaultNegativeTTL = 10 * time.Second
	defaultTimeout     = 30 * time.Second
	// maxAge is how old a discovery may be before a lookup of a known kind
	// checks whether it is still valid.
	maxAge = 10 * time.Minute
	// errorTTL is how long the error of a failed discovery is returned to later
	// callers. Without it, all callers of a cluster that is down would queue up
	// to try one after the other.
	errorTTL = time.Second
)

// Limits on a server's responses. They are far above real clusters: a cluster
// with 500 custom resource definitions has about 600 resources.
const (
	maxBody      = 4 << 20  // bytes of one decompressed document
	maxVersions  = 2000     // group versions of one document
	maxResources = 20000    // resources of one document
	maxName      = 253      // bytes of a name
	maxMemory    = 32 << 20 // of one decoded document
)

func (o Options) withDefaults() Options {
	o.NegativeTTL = cmp.Or(o.NegativeTTL, defaultNegativeTTL)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	return o
}
