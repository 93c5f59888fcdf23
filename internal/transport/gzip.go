// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
)

// decompress makes resp that of a request for which net/http had asked for a
// compressed body: the caller sees neither the encoding nor the length of what
// was sent.
func decompress(resp *http.Response) {
	if !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") || resp.Body == http.NoBody {
		return
	}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength, resp.Uncompressed = -1, true
	resp.Body = &gunzip{ReadCloser: resp.Body}
}

// gunzip decompresses a body. Nothing is read before the first Read, which may
// fail if the body is none. Close may be called during a Read, which it ends.
type gunzip struct {
	io.ReadCloser // compressed

	plain *gzip.Reader // nil before the first Read
	err   error        // of all Reads from now on
}

// Read implements io.Reader.
func (g *gunzip) Read(p []byte) (n int, err error) {
	if g.plain == nil && g.err == nil {
		g.plain, g.err = gzip.NewReader(g.ReadCloser)
	}
	if g.err != nil {
		return 0, g.err
	}
	n, g.err = g.plain.Read(p)
	return n, g.err
}
