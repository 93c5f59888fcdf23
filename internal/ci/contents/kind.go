// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"
)

// maxSize is how large a file may be, in bytes.
const maxSize = 256 << 10

// kinds are what a file is by its first bytes. Other binary files are known by
// not being text.
var kinds = []struct {
	magic string
	name  string
}{
	{"\x7fELF", "a program or object file (ELF)"},
	{"\xfe\xed\xfa\xce", "a program or object file (Mach-O)"},
	{"\xfe\xed\xfa\xcf", "a program or object file (Mach-O)"},
	{"\xce\xfa\xed\xfe", "a program or object file (Mach-O)"},
	{"\xcf\xfa\xed\xfe", "a program or object file (Mach-O)"},
	{"\xca\xfe\xba\xbe", "a Java class or universal Mach-O program"},
	{"\xca\xfe\xba\xbf", "a universal Mach-O program"},
	{"\x00asm", "a WebAssembly module"},
	{"!<arch>\n", "an archive of object files"},
	{"!<thin>\n", "an archive of object files"},
	{"go object ", "a Go object file"},
	{"PK\x03\x04", "a zip or jar archive"},
	{"PK\x05\x06", "a zip or jar archive"},
	{"\x1f\x8b", "a gzip archive"},
	{"BZh", "a bzip2 archive"},
	{"\xfd7zXZ\x00", "an xz archive"},
	{"\x28\xb5\x2f\xfd", "a zstd archive"},
	{"\x89PNG", image},
	{"\xff\xd8\xff", image},
	{"GIF8", image},
}

const image = "an image that is not listed"

// contents is what is known about one blob.
type contents struct {
	size int
	kind string // empty for text
}

// look returns what data are. Only the first bytes of a program are needed to
// know it, but a zero byte anywhere makes a file binary.
func look(data []byte) contents {
	c := contents{size: len(data)}
	for _, k := range kinds {
		if bytes.HasPrefix(data, []byte(k.magic)) {
			c.kind = k.name
			return c
		}
	}
	zero := bytes.IndexByte(data, 0) >= 0
	switch {
	case zero && bytes.HasPrefix(data, []byte("MZ")):
		c.kind = "a program (PE)"
	case zero || !utf8.Valid(data):
		c.kind = "neither text nor a listed image"
	}
	return c
}

// refuses returns why c must not be committed at path, or "".
func (c contents) refuses(path string, images []string) string {
	switch {
	case c.kind == image && slices.Contains(images, path):
	case c.kind != "":
		return c.kind
	}
	if c.size > maxSize {
		return fmt.Sprintf("%d KiB, more than %d KiB", c.size>>10, maxSize>>10)
	}
	return ""
}
