// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"sync"

	"github.com/klauspost/compress/s2"

	"github.com/fleetcache/fleetcache/clustercache/persist"
)

const (
	// format is the format of records; a record of another one is not read.
	format     = 2
	sealed     = 0x80 // a flag of the format: the record is encrypted
	compressed = 0x40 // a flag of the format: the content is compressed, before it is encrypted
	idSize     = 16
	// maxRecord bounds the decompressed size of one record: sizes are read from
	// disk.
	maxRecord = 64 << 20
)

// Why kept states are dropped.
var (
	errFormat = errors.New("another format")
	errSealed = errors.New("encrypted, or not encrypted, against the options")
	errBroken = errors.New("damaged, or of another key")
)

// id is a digest that identifies an informer, an object, or the content of a
// record.
type id [idSize]byte

// codec writes and reads records:
//
//	format (1) │ content, maybe compressed, maybe sealed │ checksum (16)
//
// The checksum is one of the content before it is sealed, the bucket and the key.
// So a record is valid only where it was written, and two records of one place
// with the same checksum have the same content.
type codec struct {
	index   []byte // authenticates identifiers, so that names cannot be guessed from them
	key     []byte // of the contents; nil if they are not encrypted
	hashers sync.Pool
}

func newCodec(key []byte) (*codec, error) {
	c := &codec{}
	if len(key) > 0 {
		var err error
		if c.index, err = hkdf.Key(sha256.New, key, nil, "fleetcache index", persist.KeyBytes); err != nil {
			return nil, fmt.Errorf("derive key: %w", err)
		}
		c.key = key
	}
	c.hashers.New = func() any {
		if c.index == nil {
			return &hasher{Hash: sha256.New()}
		}
		return &hasher{Hash: hmac.New(sha256.New, c.index)}
	}

	return c, nil
}

// hasher is a hash with room for what is written to it, and for the sum.
type hasher struct {
	hash.Hash

	text []byte
}

// part writes the length of a text, and the text.
func (h *hasher) part(p string) {
	h.text = append(binary.BigEndian.AppendUint64(h.text[:0], uint64(len(p))), p...)
	h.Write(h.text)
}

func (h *hasher) sum() (out id) {
	h.text = h.Sum(h.text[:0])
	copy(out[:], h.text)
	return out
}

// id returns the identifier of a sequence of strings.
func (c *codec) id(parts ...string) (out id) {
	h, _ := c.hashers.Get().(*hasher)
	h.Reset()
	for _, p := range parts {
		h.part(p)
	}
	out = h.sum()
	c.hashers.Put(h)

	return out
}

// bucketCodec writes and reads the records of a bucket, in one goroutine.
type bucketCodec struct {
	codec *codec
	name  string
	aead  cipher.AEAD // nil if the contents are not encrypted
	place []byte      // room for a place
}

// of returns what writes and reads the records of a bucket. Each bucket has a
// key of its own, since nonces are random: no key encrypts more than 2^32
// records.
func (c *codec) of(bucket string) (*bucketCodec, error) {
	b := &bucketCodec{codec: c, name: bucket}
	if c.key == nil {
		return b, nil
	}
	key, err := hkdf.Key(sha256.New, c.key, nil, "fleetcache bucket "+bucket, persist.KeyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	b.aead, err = cipher.NewGCMWithRandomNonce(block)

	return b, err
}

// at returns what identifies the place of a record, and its format.
func (b *bucketCodec) at(key []byte, format byte) []byte {
	out := binary.BigEndian.AppendUint32(b.place[:0], uint32(len(b.name))) //nolint:gosec // short
	out = append(out, b.name...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(key))) //nolint:gosec // short
	b.place = append(append(out, key...), format)

	return b.place
}

// sum returns the checksum of a content.
func (b *bucketCodec) sum(key []byte, format byte, content []byte) id {
	h, _ := b.codec.hashers.Get().(*hasher)
	h.Reset()
	h.Write(b.at(key, format))
	h.Write(content)
	out := h.sum()
	b.codec.hashers.Put(h)

	return out
}

// format returns the format of records.
func (b *bucketCodec) format(compress bool) byte {
	f := byte(format)
	if b.aead != nil {
		f |= sealed
	}
	if compress {
		f |= compressed
	}
	return f
}

// append appends the record of a content, which is compressed already if it is
// to be, and of which sum is the checksum.
func (b *bucketCodec) append(dst, key, content []byte, compress bool, sum id) []byte {
	f := b.format(compress)
	dst = append(dst, f)
	if b.aead != nil {
		dst = b.aead.Seal(dst, nil, content, b.at(key, f))
	} else {
		dst = append(dst, content...)
	}
	return append(dst, sum[:]...)
}

// encode returns the record of a content, compressed.
func (b *bucketCodec) encode(key, content []byte) []byte {
	content = s2.Encode(nil, content)
	return b.append(nil, key, content, true, b.sum(key, b.format(true), content))
}

// decode returns the content of a record, which may be a part of it, and its
// checksum. It returns an error unless the record was written under the same
// bucket and key, with the same encryption.
func (b *bucketCodec) decode(key, record []byte) (content []byte, sum id, err error) {
	sum, ok := sumOf(record)
	if !ok {
		return nil, sum, errBroken
	}
	f, content := record[0], record[1:len(record)-idSize]
	switch {
	case f&^(sealed|compressed) != format:
		return nil, sum, errFormat
	case f&sealed != 0 != (b.aead != nil):
		return nil, sum, errSealed
	}
	if b.aead != nil {
		if content, err = b.aead.Open(nil, nil, content, b.at(key, f)); err != nil {
			return nil, sum, errBroken
		}
	}
	if want := b.sum(key, f, content); subtle.ConstantTimeCompare(want[:], sum[:]) != 1 {
		return nil, sum, errBroken
	}
	if f&compressed != 0 {
		if n, err := s2.DecodedLen(content); err != nil || n > maxRecord {
			return nil, sum, errBroken
		}
		if content, err = s2.Decode(nil, content); err != nil {
			return nil, sum, errBroken
		}
	}

	return content, sum, nil
}

// sumOf returns the checksum of a record, without checking it.
func sumOf(record []byte) (sum id, ok bool) {
	if len(record) < 1+idSize {
		return sum, false
	}
	copy(sum[:], record[len(record)-idSize:])
	return sum, true
}
