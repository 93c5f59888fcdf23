// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// head is the beginning of a response.
type head struct {
	status  int
	fields  []hpack.HeaderField // without the status
	length  int64               // as declared, or unknown
	left    int64               // how much of the body is still to come, or unknown
	last    bool                // there is no body
	trailer http.Header         // with the announced keys, or nil
}

// newHead checks and reads the headers of a response. It returns nil for an
// interim response, which callers ignore.
func newHead(fields []hpack.HeaderField, last bool) (*head, error) {
	if len(fields) == 0 || !fields[0].IsPseudo() || len(fields[0].Value) != 3 {
		return nil, errResponse
	}
	status, err := strconv.ParseUint(fields[0].Value, 10, 16)
	if err != nil || status < 100 || status == http.StatusSwitchingProtocols {
		return nil, errResponse
	}
	if status < 200 {
		if last {
			return nil, errResponse
		}
		return nil, nil
	}

	h := &head{
		status: int(status),
		fields: fields[1:],
		length: unknown,
		last:   last,
	}
	if err := h.inspect(); err != nil {
		return nil, err
	}
	h.left = h.length
	switch {
	case status == http.StatusNotModified, status == http.StatusNoContent:
		h.left = 0 // the declared length is that of a body that is not sent
	case last && h.length > 0:
		return nil, errResponse
	}

	if last && h.length == unknown {
		h.length = 0
	}
	return h, nil
}

// inspect reads the fields that this package needs.
func (h *head) inspect() error {
	for _, f := range h.fields {
		switch f.Name {
		case "content-length":
			n, err := strconv.ParseUint(f.Value, 10, 63)
			if err != nil || h.length != unknown && h.length != int64(n) {
				return errResponse
			}
			h.length = int64(n)
		case "trailer":
			if h.trailer == nil {
				h.trailer = http.Header{}
			}
			for key := range strings.SplitSeq(f.Value, ",") {
				h.trailer[textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(key))] = nil
			}
		}
	}

	return nil
}

// response returns the result of RoundTrip, with s as the body.
func (h *head) response(req *http.Request, s *stream) *http.Response {
	resp := &http.Response{
		Status:        strconv.Itoa(h.status) + " " + http.StatusText(h.status),
		StatusCode:    h.status,
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Header:        h.header(),
		Body:          s,
		ContentLength: h.length,
		Trailer:       h.trailer,
		Request:       req,
		TLS:           s.c.tls,
	}
	if h.last {
		resp.Body = http.NoBody
	}
	return resp
}

// header returns the fields as a map. The values of keys that occur once share
// one allocation.
func (h *head) header() http.Header {
	header := make(http.Header, len(h.fields))
	values := make([]string, len(h.fields))
	for i, f := range h.fields {
		if f.Name == "trailer" {
			continue // it becomes Response.Trailer
		}
		key := textproto.CanonicalMIMEHeaderKey(f.Name)
		if header[key] != nil {
			header[key] = append(header[key], f.Value)
			continue
		}
		values[i] = f.Value
		header[key] = values[i : i+1 : i+1]
	}

	return header
}
