// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/resolver/internal/digest"
)

// Access is the checked configuration for reaching one cluster. It is an
// immutable value; the zero Access reaches nothing. Printing one in any way
// shows no credential.
type Access struct {
	// open returns the content; it is nil in the zero Access. It is a function
	// because fmt calls no methods of a value in an unexported field of another
	// type, and then prints what its pointers point to; of a function it prints
	// only an address.
	open   func() *material
	refs   []ObjectRef
	labels map[string]string // never changed in place
}

// material is the content of an Access.
type material struct {
	config   *rest.Config // never handed out itself
	proxy    string       // the URL behind config.Proxy, or "func" if that is not known
	salt     []string     // what the revision covers besides the configuration
	parts    digest.Parts
	revision string
	expiry   time.Time
	trusted  bool
}

// NewAccess makes an Access from a configuration that the operator's own code
// created. It is meant for resolvers outside this package. The configuration is
// copied and used as it is, including files, plugins and functions, with these
// exceptions: Timeout becomes 0, since it would cut watches; a nil Proxy
// becomes "no proxy" instead of the environment's; and NextProtos defaults to
// HTTP/2 and HTTP/1.1, so that client-go never falls back to the process's
// shared transport.
//
// Functions in the configuration (Proxy, Dial, Transport, WrapTransport) and
// the content of files it names are not part of the revision.
func NewAccess(config *rest.Config, refs ...ObjectRef) (Access, error) {
	if config == nil {
		return Access{}, invalid("config", "is nil")
	}
	return trustedAccess(config, nil, refs)
}

// trustedAccess makes an Access as NewAccess does. In the revision, salt
// represents what a digest of the configuration cannot cover.
func trustedAccess(config *rest.Config, salt []string, refs []ObjectRef) (Access, error) {
	access, err := newAccess(config, "", salt, refs)
	if err != nil {
		return Access{}, err
	}
	access.open().trusted = true // not shared yet
	return access, nil
}

// newAccess makes an Access that is not trusted. proxy is the URL behind
// config.Proxy, if known.
func newAccess(config *rest.Config, proxy string, salt []string, refs []ObjectRef) (Access, error) {
	config = cloneConfig(config)
	config.Timeout = 0
	if config.Proxy == nil {
		config.Proxy = noProxy
	} else if proxy == "" {
		proxy = "func"
	}
	if len(config.NextProtos) == 0 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	return assemble(config, proxy, salt, refs)
}

// assemble makes an Access from a configuration, which it takes over.
func assemble(config *rest.Config, proxy string, salt []string, refs []ObjectRef) (Access, error) {
	endpoint, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		// The cause would quote the host.
		return Access{}, invalid("config.host", "is not a URL")
	}
	digested := digest.Of(config, endpoint, proxy, salt)
	content := &material{
		config:   config,
		proxy:    proxy,
		salt:     salt,
		parts:    digested,
		revision: digested.Revision(),
		expiry:   digest.Expiry(config),
	}
	return Access{open: func() *material { return content }, refs: slices.Clone(refs)}, nil
}

// with returns a changed copy. In the revision, salt represents what a digest
// of the configuration cannot cover.
func (a Access) with(change func(*rest.Config), salt ...string) (Access, error) {
	before := a.open()
	config := cloneConfig(before.config)
	change(config)
	out, err := assemble(config, before.proxy, slices.Concat(before.salt, salt), a.refs)
	return out.WithLabels(a.labels), err
}

// noProxy is the proxy function of a direct connection. A nil function would
// mean the proxy of the process environment, which would let anyone who can set
// the environment see the traffic of every cluster.
func noProxy(*http.Request) (*url.URL, error) { return nil, nil }

// Config returns a copy of the configuration that belongs to the caller; nil
// for the zero Access. Its Timeout is 0 and its Proxy never nil. UserAgent,
// rate limits and Dial are the caller's to set.
func (a Access) Config() *rest.Config {
	if a.open == nil {
		return nil
	}
	return cloneConfig(a.open().config)
}

// Proxied reports whether connections go, or may go, through a proxy.
func (a Access) Proxied() bool { return a.open != nil && a.open().proxy != "" }

// IsZero reports whether this is the zero Access.
func (a Access) IsZero() bool { return a.open == nil }

// Revision identifies the meaning of the access: equal revisions mean equal
// endpoint, trust and credentials, however differently they were written. Empty
// for the zero Access.
func (a Access) Revision() string {
	if a.open == nil {
		return ""
	}
	return a.open().revision
}

// Refs returns the objects that the access came from, as a copy.
func (a Access) Refs() []ObjectRef { return slices.Clone(a.refs) }

// Labels returns the labels of the cluster, as a copy that is never nil. They
// are not part of the revision. Resolvers of the hub give those of the objects
// that describe the cluster.
func (a Access) Labels() map[string]string {
	out := make(map[string]string, len(a.labels))
	maps.Copy(out, a.labels)
	return out
}

// WithLabels returns a copy of the access with the given labels of the cluster,
// in place of those that it has.
func (a Access) WithLabels(labels map[string]string) Access {
	a.labels = maps.Clone(labels)
	return a
}

// Expiry returns when the first of the credentials expires: the client
// certificate, or a token that contains its expiry (a JWT). Zero if unknown.
func (a Access) Expiry() time.Time {
	if a.open == nil {
		return time.Time{}
	}
	return a.open().expiry
}

// Trusted reports whether the operator itself chose the endpoint, in its code
// or as its own in-cluster environment, rather than data from another author. A
// [DialPolicy] has nothing to protect then.
func (a Access) Trusted() bool { return a.open != nil && a.open().trusted }

// String names the references and the revision, but none of the content.
func (a Access) String() string {
	if a.open == nil {
		return "Access{}"
	}
	return fmt.Sprintf("Access{%s from %v}", a.open().revision[:12], a.refs)
}

// GoString is String.
func (a Access) GoString() string { return a.String() }

// Format writes String for every verb.
func (a Access) Format(state fmt.State, _ rune) { _, _ = fmt.Fprint(state, a.String()) }

// MarshalJSON writes String as a JSON string.
func (a Access) MarshalJSON() ([]byte, error) { return json.Marshal(a.String()) }

// MarshalLog returns the value that logr writes.
func (a Access) MarshalLog() any { return a.String() }

// cloneConfig is rest.CopyConfig without shared slices, maps and pointers to
// data.
func cloneConfig(in *rest.Config) *rest.Config {
	out := rest.CopyConfig(in)
	out.CAData = bytes.Clone(in.CAData)
	out.CertData = bytes.Clone(in.CertData)
	out.KeyData = bytes.Clone(in.KeyData)
	out.NextProtos = slices.Clone(in.NextProtos)
	out.Impersonate.Groups = slices.Clone(in.Impersonate.Groups)
	if in.Impersonate.Extra != nil {
		out.Impersonate.Extra = make(map[string][]string, len(in.Impersonate.Extra))
		for key, values := range in.Impersonate.Extra {
			out.Impersonate.Extra[key] = slices.Clone(values)
		}
	}

	out.ExecProvider = in.ExecProvider.DeepCopy()
	out.AuthProvider = in.AuthProvider.DeepCopy()

	return out
}

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
