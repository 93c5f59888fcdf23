// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// A file of this package is a database of bbolt that has the marker in both of
// its meta pages, as the sequence of the root bucket, and the format in their
// flags. bbolt uses neither, and copies both with each transaction. So one
// intact meta page is enough to know whose the file is, however damaged the
// rest.
const (
	marker    = 0xF1EE7CAC4EF11E5D
	markerEnd = 32 // in a meta page
	format    = 1
)

// foreign returns what a file is that has no marker, or "". No part of the
// content is in it.
func foreign(file io.ReaderAt) (string, error) {
	found := "it is no database"
	// The second meta page is at the page size of the machine that wrote it.
	for at := int64(0); at <= maxPageSize; at = max(2*at, minPageSize) {
		b := make([]byte, headerSize+metaSize)
		n, err := file.ReadAt(b, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", readError{err}
		}
		m := meta(b[headerSize:])
		if n < headerSize+markerEnd || at != 0 && m.pageSize() != at {
			continue
		}
		if m.marker() == marker {
			return "", nil
		}
		if m.magic() == magic {
			found = "it is a bbolt database without the marker of this library"
		}
	}
	return found, nil
}

// initial returns a file without a bucket.
func initial(pageSize int) []byte {
	const root, pages = 2, 3
	file := make([]byte, pages*pageSize)
	put32, put64 := binary.NativeEndian.PutUint32, binary.NativeEndian.PutUint64
	page := func(i int, flags uint16) []byte {
		b := file[i*pageSize : (i+1)*pageSize]
		put64(b, uint64(i))
		binary.NativeEndian.PutUint16(b[8:], flags)
		return b[headerSize:]
	}
	page(root, leafFlag)
	for i := range root {
		m := meta(page(i, metaFlag)[:metaSize])
		put32(m[0:], magic)
		put32(m[4:], version)
		put32(m[8:], uint32(pageSize))
		put32(m[12:], format)
		put64(m[16:], root)
		put64(m[24:], marker)
		put64(m[32:], noFreelist)
		put64(m[40:], pages)
		put64(m[48:], uint64(i))
		put64(m[56:], m.sum())
	}

	return file
}

// meta is what a meta page says.
type meta []byte

func (m meta) magic() uint32    { return u32(m[0:]) }
func (m meta) pageSize() int64  { return int64(u32(m[8:])) }
func (m meta) format() uint32   { return u32(m[12:]) }
func (m meta) root() uint64     { return u64(m[16:]) }
func (m meta) marker() uint64   { return u64(m[24:]) }
func (m meta) freelist() uint64 { return u64(m[32:]) }
func (m meta) pages() uint64    { return u64(m[40:]) }
func (m meta) tx() uint64       { return u64(m[48:]) }

// sum returns the checksum that the page should have.
func (m meta) sum() uint64 {
	h := fnv.New64a()
	h.Write(m[:metaSize-8])
	return h.Sum64()
}

// valid reports whether bbolt takes the page for valid.
func (m meta) valid() bool {
	return m.magic() == magic && u32(m[4:]) == version && u64(m[56:]) == m.sum()
}

// check returns why the database of a valid page must not be used.
func (m meta) check(pageSize, size int64) error {
	switch {
	case m.marker() != marker:
		return errors.New("a meta page without the marker")
	case m.format() != format:
		return fmt.Errorf("format %d, and not %d", m.format(), format)
	case m.pageSize() != pageSize:
		return fmt.Errorf("pages of %d bytes, and not of %d", m.pageSize(), pageSize)
	case m.freelist() != noFreelist:
		return errors.New("a list of free pages")
	case m.pages() < 3 || m.pages() > maxPages || int64(m.pages())*pageSize > size:
		return fmt.Errorf("truncated: %d pages in %d bytes", m.pages(), size)
	}
	return nil
}
