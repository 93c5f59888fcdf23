// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"

	"github.com/klauspost/compress/zstd"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
)

const (
	// dictionarySize is how much of other Pods a Pod is compressed with.
	dictionarySize = 112 << 10
	// window covers all Pods.
	window = 64 << 20
)

// floors measures what compressing Pods comes to, without the library: bytes
// per Pod with its own labels, without managedFields.
func (p plan) floors(_ context.Context, r *report) error {
	texts, whole, err := podTexts(p.pods)
	if err != nil {
		return err
	}
	var stripped, dictionary []byte
	for _, t := range texts {
		stripped = append(stripped, t...)
	}
	dictionary = stripped[:min(dictionarySize, len(stripped)/4)]
	alone, err := compressed(texts, zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	with, err := compressed(texts, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderDictRaw(1, dictionary))
	if err != nil {
		return err
	}
	block, err := compressed([][]byte{stripped}, zstd.WithEncoderLevel(zstd.SpeedBestCompression),
		zstd.WithWindowSize(window))
	if err != nil {
		return err
	}

	n := float64(len(texts))
	for _, x := range []struct {
		name  string
		bytes int
	}{
		{"JSON, with managedFields", whole},
		{"JSON", len(stripped)},
		{"zstd, each alone", alone},
		{"zstd, with 112 KiB of other Pods as dictionary", with},
		{"zstd, all Pods as one block", block},
	} {
		r.add("floors: bytes per Pod", x.name, float64(x.bytes)/n, "B", nil)
	}

	return nil
}

// podTexts returns Pods as JSON, and how long they are with managedFields.
func podTexts(n int) (texts [][]byte, whole int, err error) {
	g, managed := objects.Generator{Replicas: 1}, objects.NewManaged(objects.Pods)
	for i := range n {
		o := g.Stored(objects.Pods, i, 0)
		text, err := json.Marshal(o)
		if err != nil {
			return nil, 0, err
		}
		texts = append(texts, text)
		if err := managed.Add(g, o); err != nil {
			return nil, 0, err
		}
		if text, err = json.Marshal(o); err != nil {
			return nil, 0, err
		}
		whole += len(text)
	}

	return texts, whole, nil
}

// compressed returns how many bytes the texts take, each compressed by itself.
func compressed(texts [][]byte, options ...zstd.EOption) (int, error) {
	z, err := zstd.NewWriter(nil, options...)
	if err != nil {
		return 0, err
	}
	n := 0
	var buffer []byte
	for _, t := range texts {
		buffer = z.EncodeAll(t, buffer[:0])
		n += len(buffer)
	}

	return n, z.Close()
}
