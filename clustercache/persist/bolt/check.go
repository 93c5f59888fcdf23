// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// The layout of a file of bbolt: two meta pages, of which the valid one with
// the higher transaction counts, and from its root a tree of branch and leaf
// pages. The values of a tree are records, or buckets, which are trees as well:
// either in pages of their own, or within the value.
const (
	magic      = 0xED0CDAED
	version    = 2
	headerSize = 16
	metaSize   = 64
	elemSize   = 16
	bucketSize = 16
	branchFlag = 0x01
	leafFlag   = 0x02
	metaFlag   = 0x04
	bucketElem = 0x01
	noFreelist = math.MaxUint64
	maxDepth   = 32
	maxPages   = 1 << 32
	maxKey     = 32 << 10

	minPageSize, maxPageSize = 1 << 10, 1 << 24
)

// checker checks that every page that can be reached is valid, and reached
// once.
type checker struct {
	file     io.ReaderAt
	pageSize int64
	pages    uint64 // in use or free, from the beginning of the file
	reached  []uint64
	used     int64    // how many pages were reached
	rooms    [][]byte // for the pages from the root to the one that is being read
}

// check returns why bbolt must not use a file, or nil, and how many bytes of it
// are in use. err is the error of reading it.
func check(file io.ReaderAt, size int64) (used int64, damage, err error) {
	c := &checker{
		file:     file,
		pageSize: int64(os.Getpagesize()),
	}
	root, err := c.meta(size)
	if err == nil {
		c.reached = make([]uint64, c.pages/64+1)
		c.reach(0)
		c.reach(1)
		err = c.tree(root, span{}, 0, false)
	}
	if _, failed := errors.AsType[readError](err); failed {
		return 0, nil, err
	}
	return c.used * c.pageSize, err, nil
}

// readError is an error of the file, and so no proof that it is damaged.
type readError struct{ error }

// Unwrap returns the cause.
func (e readError) Unwrap() error { return e.error }

// read reads n bytes into b, which becomes larger if necessary.
func (c *checker) read(b []byte, at, n int64) ([]byte, error) {
	b = slices.Grow(b[:0], int(n))[:n]
	if _, err := c.file.ReadAt(b, at); errors.Is(err, io.EOF) {
		return nil, errors.New("truncated")
	} else if err != nil {
		return nil, readError{err}
	}
	return b, nil
}

// meta returns the root of the valid meta page.
func (c *checker) meta(size int64) (root uint64, err error) {
	var newest meta
	for i := range int64(2) {
		page, err := c.read(nil, i*c.pageSize, headerSize+metaSize)
		if err != nil {
			return 0, err
		}
		if m := meta(page[headerSize:]); m.valid() && (newest == nil || m.tx() > newest.tx()) {
			newest = m
		}
	}
	if newest == nil {
		return 0, errors.New("no valid meta page")
	}
	c.pages = newest.pages()

	return newest.root(), newest.check(c.pageSize, size)
}

// reach reports whether a page is reached for the first time.
func (c *checker) reach(page uint64) bool {
	word, bit := page/64, uint64(1)<<(page%64)
	first := c.reached[word]&bit == 0
	c.reached[word] |= bit
	c.used++
	return first
}

// span is the range of keys of a part of a tree; nil is no bound.
type span struct{ from, to []byte }

func (s span) contains(key []byte) bool {
	return (s.from == nil || bytes.Compare(key, s.from) >= 0) && (s.to == nil || bytes.Compare(key, s.to) < 0)
}

// tree checks the pages from one on. inner is false for the tree of buckets.
func (c *checker) tree(page uint64, keys span, depth int, inner bool) error {
	bad := func(what string) error { return fmt.Errorf("page %d: %s", page, what) }
	if page < 2 || page >= c.pages || depth > maxDepth {
		return bad("out of range")
	}
	if depth == len(c.rooms) {
		c.rooms = append(c.rooms, nil)
	}
	data, err := c.read(c.rooms[depth], int64(page)*c.pageSize, c.pageSize)
	if err != nil {
		return err
	}
	more := uint64(u32(data[12:]))
	if u64(data) != page || page+more >= c.pages {
		return bad("another page")
	}
	for i := page; i <= page+more; i++ {
		if !c.reach(i) {
			return bad("reached twice")
		}
	}
	if more > 0 {
		if data, err = c.read(data, int64(page)*c.pageSize, int64(more+1)*c.pageSize); err != nil {
			return err
		}
	}
	c.rooms[depth] = data // and depth grows with each page on the way

	switch u16(data[8:]) {
	case leafFlag:
		err = c.leaf(data, keys, depth, inner)
	case branchFlag:
		err = c.branch(data, keys, depth, inner)
	default:
		err = errors.New("neither a leaf nor a branch")
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", page, err)
	}

	return nil
}

// elements calls f for each element of a page, with its key, of keySize bytes,
// and what follows the key.
func elements(data []byte, keys span,
	shape func(elem []byte) (pos, keySize, valueSize uint64), f func(i int, elem, key, value []byte) error) error {
	count := int(u16(data[10:]))
	if headerSize+count*elemSize > len(data) {
		return errors.New("too many elements")
	}
	var last []byte
	for i := range count {
		at := uint64(headerSize + i*elemSize)
		elem := data[at : at+elemSize]
		pos, keySize, valueSize := shape(elem)
		from, end := at+pos, at+pos+keySize+valueSize
		if from < uint64(headerSize+count*elemSize) || end > uint64(len(data)) || keySize > maxKey {
			return errors.New("an element is out of range")
		}
		key := data[from : from+keySize]
		if i > 0 && bytes.Compare(last, key) >= 0 || !keys.contains(key) {
			return errors.New("keys are not in order")
		}
		// bbolt finds the parent's element of a page by the page's first key. If
		// they differed, the next write would add an element out of order.
		if i == 0 && keys.from != nil && !bytes.Equal(key, keys.from) {
			return errors.New("the first key is not the one that led here")
		}
		last = key
		if err := f(i, elem, key, data[from+keySize:end]); err != nil {
			return err
		}
	}

	return nil
}

func (c *checker) leaf(data []byte, keys span, depth int, inner bool) error {
	shape := func(e []byte) (pos, keySize, valueSize uint64) {
		return uint64(u32(e[4:])), uint64(u32(e[8:])), uint64(u32(e[12:]))
	}
	return elements(data, keys, shape, func(_ int, elem, key, value []byte) error {
		flags := u32(elem)
		switch {
		case len(key) == 0:
			return errors.New("an empty key")
		case inner && flags == 0:
			return nil
		case inner || flags != bucketElem || len(value) < bucketSize:
			return errors.New("another kind of element")
		}

		if root := u64(value); root != 0 {
			return c.tree(root, span{}, depth+1, true)
		}
		inline := value[bucketSize:]
		if len(inline) < headerSize || u16(inline[8:]) != leafFlag || u32(inline[12:]) != 0 {
			return errors.New("another kind of bucket")
		}
		return c.leaf(inline, span{}, depth+1, true)
	})
}

func (c *checker) branch(data []byte, keys span, depth int, inner bool) error {
	shape := func(e []byte) (pos, keySize, valueSize uint64) {
		return uint64(u32(e)), uint64(u32(e[4:])), 0
	}
	type child struct {
		page uint64
		from []byte
	}
	var children []child
	err := elements(data, keys, shape, func(_ int, elem, key, _ []byte) error {
		children = append(children, child{u64(elem[8:]), key})
		return nil
	})
	if err == nil && len(children) == 0 {
		err = errors.New("no element")
	}
	for i, ch := range children {
		if err != nil {
			return err
		}
		to := keys.to
		if i+1 < len(children) {
			to = children[i+1].from
		}
		err = c.tree(ch.page, span{ch.from, to}, depth+1, inner)
	}

	return err
}

func u16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
func u32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
func u64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
