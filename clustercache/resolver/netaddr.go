// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import "net/netip"

// metadata lists addresses outside the link-local range at which clouds hand
// out credentials to any caller.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS: instance metadata, pod identity, DNS
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google Cloud
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")       // dials this host
	nat64       = netip.MustParsePrefix("64:ff9b::/96")    // the last 32 bits are the IPv4 address that is reached
	ipv4in6     = netip.MustParsePrefix("::/96")           // likewise, long deprecated
	translated  = netip.MustParsePrefix("::ffff:0:0:0/96") // likewise, used by stateless translators
	sixToFour   = netip.MustParsePrefix("2002::/16")       // likewise, in bits 16 to 48
	broadcast   = netip.MustParsePrefix("240.0.0.0/4")     // reserved and broadcast
	siteLocal   = netip.MustParsePrefix("fec0::/10")       // deprecated, link-scoped in practice
	nat64Local  = netip.MustParsePrefix("64:ff9b:1::/48")  // NAT64 of a local prefix; /96 is the form in use
)

// neverDialed returns the kind of the address if its risk outweighs any
// cluster that could be there, or "".
func neverDialed(addr netip.Addr) string {
	addr = reached(addr)
	switch {
	case addr.IsLinkLocalUnicast() || siteLocal.Contains(addr):
		return "a link-local address"
	case addr.IsUnspecified() || thisNetwork.Contains(addr):
		return "an unspecified address"
	case addr.IsMulticast() || broadcast.Contains(addr):
		return "a multicast or reserved address"
	}

	for _, prefix := range metadata {
		if prefix.Contains(addr) {
			return "a metadata service"
		}
	}
	return ""
}

// reached returns the address at which a packet to addr arrives, as far as addr
// itself reveals it.
func reached(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addr
	}
	bytes := addr.As16()
	switch {
	case nat64.Contains(addr) || nat64Local.Contains(addr) || translated.Contains(addr):
		return netip.AddrFrom4([4]byte(bytes[12:]))
	case ipv4in6.Contains(addr) && !addr.IsLoopback() && !addr.IsUnspecified():
		return netip.AddrFrom4([4]byte(bytes[12:]))
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(bytes[2:6]))
	}

	return addr
}
