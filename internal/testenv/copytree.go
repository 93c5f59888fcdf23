// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// copyTree copies a directory of etcd. etcd preallocates log segments of 64
// MiB, which are mostly zero: copyTree turns runs of zeros into holes, and
// omits segments that are prepared for later, *.tmp.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}

		switch target := filepath.Join(to, relative); {
		case entry.IsDir():
			return os.Mkdir(target, 0o700)
		case strings.HasSuffix(path, ".tmp"):
			return nil
		default:
			return copySparse(path, target)
		}
	})
}

func copySparse(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()

	block, zeros := make([]byte, 256<<10), make([]byte, 256<<10)
	var size int64
	for {
		n, err := io.ReadFull(src, block)
		if n > 0 && !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := dst.WriteAt(block[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return dst.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}
