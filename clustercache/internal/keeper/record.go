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
	"encoding/json"
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"

	"github.com/fleetcache/fleetcache/clustercache/persist"
)

const (
	// format is the format of records; a record of another one is not read.
	format = 1
	sealed = 0x80 // a flag of the format: the record is encrypted
	idSize = 16
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

// id is a digest that identifies an informer, an object, or an object's state.
type id [idSize]byte

// codec writes and reads records:
//
//	format (1) │ state (16) │ compressed content, maybe sealed │ checksum (16)
//
// The checksum covers the bucket and the key as well, so that a record is valid
// only where it was written.
type codec struct {
	index []byte // authenticates identifiers, so that names cannot be guessed from them
	key   []byte // of the contents; nil if they are not encrypted
}

func newCodec(key []byte) (*codec, error) {
	c := &codec{}
	if len(key) == 0 {
		return c, nil
	}
	var err error
	if c.index, err = hkdf.Key(sha256.New, key, nil, "fleetcache index", persist.KeyBytes); err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	c.key = key

	return c, nil
}

// id returns the identifier of a sequence of strings.
func (c *codec) id(parts ...string) (out id) {
	h := hmac.New(sha256.New, c.index)
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	copy(out[:], h.Sum(nil))

	return out
}

// aead returns what encrypts the contents of a bucket. Each bucket has a key of
// its own, since nonces are random: no key encrypts more than 2^32 records.
func (c *codec) aead(bucket string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, c.key, nil, "fleetcache bucket "+bucket, persist.KeyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// encode returns the record of a content.
func (c *codec) encode(bucket string, key []byte, state id, content []byte) ([]byte, error) {
	record := append([]byte{format}, state[:]...)
	packed := s2.Encode(nil, content)
	if c.key != nil {
		record[0] |= sealed
		aead, err := c.aead(bucket)
		if err != nil {
			return nil, err
		}
		packed = aead.Seal(nil, nil, packed, place(bucket, key, record))
	}
	record = append(record, packed...)
	sum := checksum(bucket, key, record)

	return append(record, sum[:]...), nil
}

// decode returns the content of a record. It returns an error unless the record
// was written under the same bucket and key, with the same encryption.
func (c *codec) decode(bucket string, key, record []byte) ([]byte, error) {
	if len(record) < 1+2*idSize {
		return nil, errBroken
	}
	body, sum := record[:len(record)-idSize], record[len(record)-idSize:]
	if want := checksum(bucket, key, body); subtle.ConstantTimeCompare(want[:], sum) != 1 {
		return nil, errBroken
	}
	head, packed := body[:1+idSize], body[1+idSize:]
	switch {
	case head[0]&^sealed != format:
		return nil, errFormat
	case head[0]&sealed != 0 != (c.key != nil):
		return nil, errSealed
	}

	if c.key != nil {
		aead, err := c.aead(bucket)
		if err != nil {
			return nil, err
		}
		if packed, err = aead.Open(nil, nil, packed, place(bucket, key, head)); err != nil {
			return nil, errBroken
		}
	}
	if n, err := s2.DecodedLen(packed); err != nil || n > maxRecord {
		return nil, errBroken
	}
	content, err := s2.Decode(nil, packed)
	if err != nil {
		return nil, errBroken
	}

	return content, nil
}

// parts returns the state and the checksum of a record, without checking it.
func parts(record []byte) (state, sum id, ok bool) {
	if len(record) < 1+2*idSize {
		return state, sum, false
	}
	copy(state[:], record[1:])
	copy(sum[:], record[len(record)-idSize:])

	return state, sum, true
}

// place returns what authenticates the place of a record.
func place(bucket string, key, record []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(bucket)))
	out = append(out, bucket...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(key)))
	out = append(out, key...)

	return append(out, record...)
}

func checksum(bucket string, key, record []byte) (out id) {
	sum := sha256.Sum256(place(bucket, key, record))
	copy(out[:], sum[:])
	return out
}

// marshal returns the record of a value's JSON.
func (c *codec) marshal(bucket string, key []byte, v any) ([]byte, error) {
	content, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return c.encode(bucket, key, id{}, content)
}
