// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// defaultUserAgent is sent if a request has no User-Agent header. It is the one
// that net/http sends.
const defaultUserAgent = "Go-http-client/2.0"

// request is the HTTP/2 form of an http.Request.
type request struct {
	addr   string
	fields []hpack.HeaderField
	watch  bool
}

// Check returns an error that wraps ErrUnsupported if RoundTrip does not
// support req, whatever its headers are.
func Check(req *http.Request) error {
	switch {
	case req.URL == nil:
		return fmt.Errorf("%w: no URL", ErrUnsupported)
	case req.URL.Scheme != "https":
		return fmt.Errorf("%w: scheme %q", ErrUnsupported, req.URL.Scheme)
	case req.Method != http.MethodGet && req.Method != "":
		return fmt.Errorf("%w: method %q", ErrUnsupported, req.Method)
	case req.Body != nil && req.Body != http.NoBody, req.ContentLength != 0, len(req.TransferEncoding) > 0:
		return fmt.Errorf("%w: it has a body", ErrUnsupported)
	case len(req.Trailer) > 0:
		return fmt.Errorf("%w: it has trailers", ErrUnsupported)
	}

	return nil
}

// newRequest translates req. Apart from strings, the result does not refer to
// req.
func newRequest(req *http.Request) (request, error) {
	addr, err := address(req.URL)
	if err != nil {
		return request{}, err
	}
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	if host, err = httpguts.PunycodeHostPort(host); err != nil || !httpguts.ValidHostHeader(host) {
		return request{}, fmt.Errorf("%w: invalid host", ErrUnsupported)
	}
	path := req.URL.RequestURI()
	if !strings.HasPrefix(path, "/") {
		return request{}, fmt.Errorf("%w: invalid path", ErrUnsupported)
	}
	fields := make([]hpack.HeaderField, 0, len(req.Header)+5)
	fields = append(fields,
		hpack.HeaderField{Name: ":authority", Value: host},
		hpack.HeaderField{Name: ":method", Value: http.MethodGet},
		// Sensitive keeps the path out of both sides' compression tables: paths
		// hardly repeat, and would push out fields that do.
		hpack.HeaderField{Name: ":path", Value: path, Sensitive: true},
		hpack.HeaderField{Name: ":scheme", Value: "https"},
	)
	fields, err = appendHeader(fields, req.Header)

	return request{addr: addr, fields: fields}, err
}

// address returns the host and port to dial.
func address(u *url.URL) (string, error) {
	host, err := httpguts.PunycodeHostPort(u.Hostname())
	if err != nil || host == "" {
		return "", fmt.Errorf("%w: invalid host", ErrUnsupported)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(host, port), nil
}

// appendHeader appends a request's headers. It omits headers about the
// connection or, where omitting them would change the meaning of the request,
// refuses them.
func appendHeader(fields []hpack.HeaderField, header http.Header) ([]hpack.HeaderField, error) {
	agent := defaultUserAgent
	for key, values := range header {
		name := strings.ToLower(key)
		switch name {
		case "host", "content-length", "keep-alive", "proxy-connection":
			continue
		case "user-agent":
			agent = ""
			if len(values) > 0 {
				agent = values[0]
			}
			continue
		case "connection", "upgrade", "transfer-encoding", "te":
			if !harmless(name, values) {
				return nil, fmt.Errorf("%w: header %q", ErrUnsupported, name)
			}
			continue
		}

		if !httpguts.ValidHeaderFieldName(name) {
			return nil, fmt.Errorf("%w: invalid header name", ErrUnsupported)
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return nil, fmt.Errorf("%w: invalid value of header %q", ErrUnsupported, name)
			}
			fields = append(fields, hpack.HeaderField{Name: name, Value: value, Sensitive: secret(name)})
		}
	}

	if !httpguts.ValidHeaderFieldValue(agent) {
		return nil, fmt.Errorf("%w: invalid value of header %q", ErrUnsupported, "user-agent")
	}
	if agent != "" {
		fields = append(fields, hpack.HeaderField{Name: "user-agent", Value: agent})
	}
	return fields, nil
}

// harmless reports whether a header about the connection may be omitted.
func harmless(name string, values []string) bool {
	for _, value := range values {
		value = strings.ToLower(value)
		switch {
		case value == "":
		case name == "connection" && (value == "close" || value == "keep-alive"):
		case name == "te" && value == "trailers":
		default:
			return false
		}
	}

	return true
}

// secret reports whether a header's value must be kept out of the compression
// tables of both sides.
func secret(name string) bool {
	return name == "authorization" || name == "proxy-authorization" || name == "cookie"
}

// listSize returns the size of a header list as HTTP/2 defines it.
func listSize(fields []hpack.HeaderField) int64 {
	var n int64
	for _, f := range fields {
		n += int64(f.Size())
	}
	return n
}
