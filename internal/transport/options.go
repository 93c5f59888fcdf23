// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/dial"
)

// DialFunc opens a connection. It must return soon after ctx is done.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Options configures how the requests of one cluster are treated. The zero
// value is valid.
type Options struct {
	// Cluster names the cluster in errors and logs.
	Cluster string
	// QPS is the cluster's sustained limit of requests per second, lists
	// included; watches and probes do not count. Default 50; negative means no
	// limit.
	QPS float64
	// Burst is how many requests may be sent at once. Default 2 × QPS, at
	// least 1.
	Burst int
	// MaxUnaryBody is the largest decompressed body, in bytes, of a successful
	// response that is not a watch. Default 64 MiB.
	MaxUnaryBody int64
	// MaxErrorBody is how many decompressed bytes of an unsuccessful response
	// are passed on; the rest is cut off. It also bounds what [Candidate.Get]
	// and [Transport.ProbeAside] read. Default 1 MiB.
	MaxErrorBody int64
	// Dial opens connections and enforces the dial policy, if there is one: it
	// returns an error wrapping [ErrRefused] for an address that must not be
	// dialed. Its errors are shown to users unchanged. A rest.Config's own
	// Dial takes precedence. Default: [Dial].
	Dial DialFunc
	// NetHTTP has all requests sent by net/http. Otherwise GET requests, watches
	// among them, share HTTP/2 connections of package h2, where the server has
	// HTTP/2 and the config uses neither a proxy nor round trippers of its own.
	NetHTTP bool
	// UserAgent is sent if neither the request nor the rest.Config specifies
	// one. Default "fleetcache".
	UserAgent string
	// Logger receives state changes, never a line per request. Default: none.
	Logger logr.Logger
	// Unauthorized is called once per generation if the cluster rejects its
	// credentials. It runs on the goroutine of a request, outside every lock.
	// It must not block, and must not call Close.
	Unauthorized func(revision string)
	// Panicked is called with a panic in the operator's own transport.
	Panicked func(*callback.PanicError)
}

const (
	defaultQPS          = 50
	defaultMaxUnaryBody = 64 << 20
	defaultMaxErrorBody = 1 << 20
)

var dialer = dial.New(nil)

// Dial is the default of Options.Dial, for use by dial policies. It has a
// timeout of 30 s, and its keep-alives detect a vanished host within 45 s.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, network, address)
}

// withDefaults returns o with all unset fields set.
func (o Options) withDefaults() Options {
	if o.QPS == 0 {
		o.QPS = defaultQPS
	}
	if o.Burst <= 0 {
		o.Burst = max(1, int(2*o.QPS))
	}
	if o.MaxUnaryBody <= 0 {
		o.MaxUnaryBody = defaultMaxUnaryBody
	}
	if o.MaxErrorBody <= 0 {
		o.MaxErrorBody = defaultMaxErrorBody
	}
	if o.Dial == nil {
		o.Dial = Dial
	}
	if o.UserAgent == "" {
		o.UserAgent = "fleetcache"
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.Discard()
	}
	if o.Unauthorized == nil {
		o.Unauthorized = func(string) {}
	}

	return o
}
