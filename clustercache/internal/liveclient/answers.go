// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/meter"
	"github.com/fleetcache/fleetcache/internal/sanitize"
	"github.com/fleetcache/fleetcache/internal/transport"
)

const (
	mediaJSON = "application/json"
	// maxStatus bounds the memory of a status in an answer that is not a
	// success.
	maxStatus = 32 << 20
	// maxRaw is how much of an answer is kept until it is decoded.
	maxRaw = 1 << 20
)

// answers is the round tripper that bounds and checks the answers to calls
// before client-go decodes them, since client-go decodes any kind that a body
// names. Lists account for themselves, and go through the client that has no
// budget for bodies.
type answers struct{ unary, stream http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(req *http.Request) (*http.Response, error) {
	call := callOf(req.Context())
	if call == nil {
		return a.unary.RoundTrip(req)
	}
	next := a.unary
	if call.list != nil {
		next = a.stream
	}
	out := req.WithContext(req.Context())
	out.Header = req.Header.Clone()
	out.Header.Set("Accept", onlyJSON(req.Header.Get("Accept")))
	resp, err := next.RoundTrip(out)
	call.unanswered = call.unanswered || err != nil || resp.StatusCode >= http.StatusInternalServerError ||
		resp.StatusCode == http.StatusRequestTimeout
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		call.admitFailure(resp)
		return resp, nil
	}
	if err := call.admit(resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}

	return resp, nil
}

// onlyJSON returns the JSON types of an Accept header: other encodings cannot
// be measured while they are read.
func onlyJSON(accept string) string {
	var kept []string
	for t := range strings.SplitSeq(accept, ",") {
		if media, _, err := mime.ParseMediaType(t); err == nil && media == mediaJSON {
			kept = append(kept, t)
		}
	}
	if len(kept) == 0 {
		return mediaJSON
	}
	return strings.Join(kept, ",")
}

// admit wraps the body of a successful answer to enforce the budget.
func (c *callState) admit(resp *http.Response) error {
	c.answered, c.raw = true, nil
	switch {
	case resp.StatusCode != http.StatusNoContent && resp.ContentLength != 0:
	case c.write:
		return c.fail(errNoObject)
	default:
		return nil
	}

	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != mediaJSON && media != "" {
		return c.fail(fmt.Errorf("%w: %q instead of %s", transport.ErrNotKubernetes, sanitize.Text(media), mediaJSON))
	}

	switch {
	case c.list != nil:
		resp.ContentLength = -1
		resp.Body = &listBody{ReadCloser: resp.Body, call: c}
	case c.deletes:
		resp.Body = &objectBody{ReadCloser: resp.Body, call: c, meter: meter.New(reflect.TypeFor[metav1.Status]())}
	case c.into != nil:
		resp.Body = &objectBody{ReadCloser: resp.Body, call: c, meter: meter.New(c.into)}
	}

	return nil
}

// keep keeps the next bytes of an answer, of which so many were read by now.
func (c *callState) keep(next []byte, read int64) {
	switch {
	case c.into == nil:
	case read > maxRaw:
		c.raw = nil
	default:
		c.raw = append(c.raw, next...)
	}
}

// admitFailure reduces an unsuccessful answer to text and a status: client-go
// would decode any other kind as well.
func (c *callState) admitFailure(resp *http.Response) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if strings.HasPrefix(media, "text/") {
		return
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	m := meter.New(reflect.TypeFor[metav1.Status]())
	m.Feed(body)
	if err != nil || media != mediaJSON || !isStatus(m.TypeMeta()) || m.Cost() > maxStatus {
		body = nil
	}
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(string(body))), int64(len(body))
}

// objectBody is the body of one object. It ends with an error if the object
// would take more memory than its call may, or has another kind.
type objectBody struct {
	io.ReadCloser

	call  *callState
	meter *meter.Meter
	read  int64
}

// Read implements io.Reader.
func (b *objectBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.meter.Feed(p[:n])
	b.read += int64(n)
	b.call.keep(p[:n], b.read)
	b.call.budget.read += int64(n)
	if over := b.call.budget.check(b.meter.Cost() + copies*b.read); over != nil && !b.call.deletes {
		return 0, b.call.fail(over)
	}
	if errors.Is(err, io.EOF) {
		b.call.budget.taken += b.meter.Cost() + copies*b.read
		if other := b.call.checkObject(b.meter); other != nil {
			return 0, b.call.fail(other)
		}
		uid, version := b.meter.Identified()
		b.call.identity = identity{uid: types.UID(uid), version: version}
	}

	return n, err
}
