// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// document is a configuration, or the reason why it could not be read.
type document struct {
	text []byte
	err  error
}

// fromStream returns the documents of a stream, each of which ends with a line
// "---" or with the stream. The channel is closed at the end of the stream, or
// when a read returns after ctx has ended: nothing can interrupt one of standard
// input, so the last read may end with the process.
func fromStream(ctx context.Context, r io.Reader) <-chan document {
	return produce(ctx, func(yield func(document) bool) {
		var text bytes.Buffer
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadBytes('\n')
			end := bytes.Equal(bytes.TrimSpace(line), []byte("---"))
			if !end {
				text.Write(line)
			}
			if err != nil && !errors.Is(err, io.EOF) {
				yield(document{err: err}) // what was read may be half a document
				return
			}
			if end || err != nil {
				if len(bytes.TrimSpace(text.Bytes())) > 0 && !yield(document{text: bytes.Clone(text.Bytes())}) {
					return
				}
				text.Reset()
			}
			if err != nil {
				return
			}
		}
	})
}

// fileInterval is how often a file is read. Reading it, instead of asking the
// operating system for its changes, works with every file system, and with
// mounted ConfigMaps and editors, which replace files.
const fileInterval = time.Second

// fromFile returns the content of a file, and then each change of it. The
// channel is closed with ctx.
func fromFile(ctx context.Context, path string) <-chan document {
	return produce(ctx, func(yield func(document) bool) {
		tick := time.NewTicker(fileInterval)
		defer tick.Stop()
		var last document
		for first := true; ; first = false {
			text, err := os.ReadFile(path)
			if first || (err == nil) != (last.err == nil) || !bytes.Equal(text, last.text) {
				if last = (document{text: text, err: err}); !yield(last) {
					return
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

// produce returns a channel with what a function yields on a goroutine. It is
// closed when the function returns; yield returns false once ctx has ended.
func produce(ctx context.Context, from func(yield func(document) bool)) <-chan document {
	documents := make(chan document)
	go func() {
		defer close(documents)
		from(func(d document) bool {
			select {
			case documents <- d:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	return documents
}
