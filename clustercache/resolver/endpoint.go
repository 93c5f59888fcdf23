// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// checkServer accepts "https://host[:port][/prefix]" and returns it in that
// form. It refuses everything by which a URL could mean something other than it
// appears to: credentials, queries, escapes, dots in the path, and addresses in
// a form that only some resolvers accept.
func checkServer(field, server string, allowHTTP bool) (string, error) {
	u, err := url.Parse(server)
	if err != nil || server == "" {
		return "", invalid(field, "is not a URL")
	}
	switch {
	case u.Scheme == "http" && !allowHTTP:
		return "", forbidden(field, "uses http", "HTTP")
	case u.Scheme != "https" && u.Scheme != "http":
		return "", invalid(field, "is not an https URL")
	case u.User != nil:
		return "", refused(field, "holds credentials")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(server, "#"):
		return "", refused(field, "has a query or fragment")
	case u.Opaque != "" || u.Hostname() == "":
		return "", invalid(field, "names no host")
	}

	if err := checkPort(field, u); err != nil {
		return "", err
	}
	if err := checkHost(field, u.Hostname()); err != nil {
		return "", err
	}
	if err := checkPath(field, u); err != nil {
		return "", err
	}
	return u.Scheme + "://" + u.Host + strings.TrimRight(u.Path, "/"), nil
}

func checkPort(field string, u *url.URL) error {
	if u.Port() == "" && !strings.HasSuffix(u.Host, ":") {
		return nil
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return invalid(field, "has an invalid port")
	}
	return nil
}

// checkHost accepts a plain IP address or a DNS name. A DialPolicy checks the
// dialed address again; this check also covers connections through a proxy,
// where only the proxy is dialed.
func checkHost(field, host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return refused(field, "names a link-local address")
		}
		if reason := neverDialed(addr); reason != "" {
			return refused(field, "names "+reason)
		}
		return nil
	}

	if !isDNSName(host) {
		return invalid(field, "has an invalid host")
	}
	// The C library's resolver takes "2852039166", "0xa9fea9fe" and
	// "169.254.43518" for addresses.
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	if looksNumeric(labels[len(labels)-1]) {
		return refused(field, "writes an address in an unusual form")
	}
	return nil
}

func isDNSName(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !isAlphanumeric(c) && c != '-' && c != '_' {
				return false
			}
		}
	}

	return true
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// looksNumeric reports whether a last label makes a host an address by the
// rules of inet_aton and of browsers.
func looksNumeric(label string) bool {
	if strings.Trim(label, "0123456789") == "" {
		return true
	}
	lower := strings.ToLower(label)
	return strings.HasPrefix(lower, "0x") && strings.Trim(lower[2:], "0123456789abcdef") == ""
}

func checkPath(field string, u *url.URL) error {
	if u.RawPath != "" || strings.ContainsAny(u.Path, "%\\;?#") {
		return refused(field, "has an escaped path")
	}
	path := strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/")
	if path == "" {
		return nil
	}

	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return refused(field, "has an ambiguous path")
		}
		if strings.ContainsFunc(segment, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return refused(field, "has an escaped path")
		}
	}

	return nil
}

// checkProxy accepts the proxy URLs that client-go can use.
func checkProxy(field, proxy string) (*url.URL, error) {
	u, err := url.Parse(proxy)
	if err != nil || u.Hostname() == "" || u.Opaque != "" {
		return nil, invalid(field, "is not a URL")
	}
	switch u.Scheme {
	case "http", "https", "socks5":
	default:
		return nil, invalid(field, "is not an http, https or socks5 URL")
	}
	if err := checkPort(field, u); err != nil {
		return nil, err
	}
	return u, checkHost(field, u.Hostname())
}
