// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import "time"

// Options says how a Mapper behaves. The zero value is valid.
type Options struct {
	// NegativeTTL is for how long a discovery is good enough to say that a kind
	// does not exist: at most one discovery per this time, however many unknown
	// kinds are asked for. Default 10 s.
	NegativeTTL time.Duration
	// MaxAge is how old a discovery may be to answer for known kinds without
	// looking whether it still holds. Default 10 min.
	MaxAge time.Duration
	// Timeout bounds one discovery. Default 30 s.
	Timeout time.Duration
}

const (
	defaultNegativeTTL = 10 * time.Second
	defaultTimeout     = 30 * time.Second
	defaultMaxAge      = 10 * time.Minute
	// errorTTL is for how long a failed discovery answers for those who ask
	// next: all callers of a cluster that is down would otherwise line up to
	// try, one after the other.
	errorTTL = time.Second
)

// Limits on what a server may say. They are far above real clusters: a cluster
// with 500 custom resource definitions has about 600 resources.
const (
	maxBody      = 4 << 20  // bytes of one decompressed document
	maxVersions  = 2000     // group versions of one document
	maxResources = 20000    // resources of one document
	maxName      = 253      // bytes of a name
	maxMemory    = 32 << 20 // of one decoded document
)

func (o Options) withDefaults() Options {
	if o.NegativeTTL <= 0 {
		o.NegativeTTL = defaultNegativeTTL
	}
	if o.MaxAge <= 0 {
		o.MaxAge = defaultMaxAge
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	return o
}
