// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fleetcache/fleetcache/internal/dial"
)

// DialPolicy decides which addresses from untrusted sources, such as Secrets,
// may be dialed. It judges the address after name resolution, so neither a name
// nor a spelling nor a name that changes its address between check and use can
// get around it. The zero value is the strictest policy.
//
// Link-local, multicast, unspecified and reserved addresses and the metadata
// services of the big clouds are always refused, also inside IPv6 forms of IPv4
// addresses. Addresses of private networks are allowed: most clusters use them.
type DialPolicy struct {
	// AllowLoopback permits this host's own loopback addresses, where a Pod's
	// sidecars listen. Default: refused. A ClusterCache that does not run in a
	// Pod permits them.
	AllowLoopback bool
	// AllowHub permits the hub's own API server. Default: refused, since a
	// description that leads back to the hub would redirect the operator's
	// reads and credentials there.
	AllowHub bool
	// Hub lists the hub's API servers, as URL (such as the Host of its
	// rest.Config), host:port, or host for port 443. The API server in a Pod's
	// environment (KUBERNETES_SERVICE_HOST and _PORT) always counts as one. Use
	// Deny for other addresses that lead to the hub, such as those of its
	// nodes.
	Hub []string
	// Deny lists further networks that are refused.
	Deny []netip.Prefix
}

// hubRefresh is how long looked-up addresses of the hub are used.
const hubRefresh = time.Minute

// Check judges an address and port without looking anything up: names in Hub
// are not considered.
func (p DialPolicy) Check(target netip.AddrPort) error {
	addr := reached(target.Addr())
	reason := neverDialed(addr)
	if reason == "" && addr.IsLoopback() && !p.AllowLoopback {
		reason = "a loopback address, which DialPolicy.AllowLoopback would permit"
	}
	for _, prefix := range p.Deny {
		if reason == "" && prefix.Contains(addr) {
			reason = "in a network that is refused"
		}
	}
	if reason != "" {
		return refused("address "+target.Addr().String(), "is "+reason)
	}
	return nil
}

// Dialer returns a dial function, for [k8s.io/client-go/rest.Config] or
// [net/http.Transport], that enforces the policy. A refused address is a
// [*RefusedError] inside the dial error. It is safe for concurrent use. Names
// in Hub are looked up by the first dial, which waits for a second at most, and
// then once a minute, for which no dial waits; nothing is dialed until a
// look-up has succeeded.
func (p DialPolicy) Dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	hub := p.newHubAddresses()
	return dial.New(func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err != nil {
			return refused("address", "is not an IP address with a port")
		}
		if err := p.Check(target); err != nil {
			return err
		}
		return hub.check(ctx, target)
	}).DialContext
}

// hubAddresses holds the addresses at which the hub's API server listens.
type hubAddresses struct {
	fixed []netip.AddrPort
	names []hostPort

	mu       sync.Mutex // protects the fields below
	resolved []netip.AddrPort
	at       time.Time     // of the last successful look-up
	tried    time.Time     // of the end of the last look-up
	err      error         // of the last look-up
	flight   chan struct{} // closed at the end of the look-up under way
}

const (
	// hubLookUp bounds one look-up, hubPatience the time that a dial waits for
	// the first; hubRetry is how long a failure is kept.
	hubLookUp   = 5 * time.Second
	hubPatience = time.Second
	hubRetry    = 5 * time.Second
)

var errHubUnknown = errors.New("no answer yet")

type hostPort struct {
	host string
	port uint16
}

func (p DialPolicy) newHubAddresses() *hubAddresses {
	out := &hubAddresses{}
	if p.AllowHub {
		return out
	}
	all := p.Hub
	if host := os.Getenv("KUBERNETES_SERVICE_HOST"); host != "" {
		all = append([]string{net.JoinHostPort(host, os.Getenv("KUBERNETES_SERVICE_PORT"))}, all...)
	}

	for _, text := range all {
		target := parseHostPort(text)
		if addr, err := netip.ParseAddr(target.host); err == nil {
			out.fixed = append(out.fixed, netip.AddrPortFrom(reached(addr), target.port))
		} else if target.host != "" {
			out.names = append(out.names, target)
		}
	}

	return out
}

func parseHostPort(text string) hostPort {
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		text = u.Host
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, ""
	}
	number, err := net.LookupPort("tcp", port)
	if err != nil || number == 0 {
		number = 443
	}

	return hostPort{host: host, port: uint16(number)}
}

func (h *hubAddresses) check(ctx context.Context, target netip.AddrPort) error {
	target = netip.AddrPortFrom(reached(target.Addr()), target.Port())
	looked, err := h.lookUp(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(h.fixed, target) || slices.Contains(looked, target) {
		return refused("address "+target.Addr().String(),
			"is the hub's own API server, which DialPolicy.AllowHub would permit")
	}
	return nil
}

// lookUp returns the addresses of the names. One background goroutine looks
// them up for all dials: once they are known no dial waits for a name server,
// and before that for no longer than hubPatience.
func (h *hubAddresses) lookUp(ctx context.Context) ([]netip.AddrPort, error) {
	if len(h.names) == 0 {
		return nil, nil
	}
	h.mu.Lock()
	stale := h.at.IsZero() || time.Since(h.at) >= hubRefresh
	if stale && h.flight == nil && (h.err == nil || time.Since(h.tried) >= hubRetry) {
		h.flight = make(chan struct{})
		go h.refresh(h.flight) // ends within hubLookUp
	}
	known, at, flight := h.resolved, h.at, h.flight
	h.mu.Unlock()

	if !at.IsZero() {
		return known, nil // the hub rarely moves, and remote clusters must not depend on its name
	}

	if flight != nil {
		select {
		case <-flight:
		case <-time.After(hubPatience):
		case <-ctx.Done():
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at.IsZero() {
		return nil, fmt.Errorf("looking up the hub's own address, which must not be dialled: %w",
			cmp.Or(h.err, errHubUnknown))
	}
	return h.resolved, nil
}

// refresh looks the names up.
func (h *hubAddresses) refresh(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), hubLookUp)
	defer cancel()
	var fresh []netip.AddrPort
	var failed error
	for _, name := range h.names {
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name.host)
		failed = cmp.Or(failed, err)
		for _, addr := range addrs {
			fresh = append(fresh, netip.AddrPortFrom(reached(addr), name.port))
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	h.tried, h.err = time.Now(), failed
	if failed == nil {
		h.resolved, h.at = fresh, h.tried
	}
	h.flight = nil
	close(done)
}
