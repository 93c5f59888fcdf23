// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// touchySource panics in one of its methods.
type touchySource struct {
	*pooltest.Server

	in   string
	calm *atomic.Bool
}

func (s *touchySource) at(place string) {
	if s.in == place && !s.calm.Load() {
		panic("no " + place)
	}
}

func (s *touchySource) KindOf(context.Context, informerpool.Request) (string, error) {
	s.at("KindOf")
	return "Widget", nil
}

func (s *touchySource) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	body, err := s.Server.List(ctx, r)
	return &touchyBody{body, s}, err
}

func (s *touchySource) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	s.at("Watch")
	body, err := s.Server.Watch(ctx, r)
	return &touchyBody{body, s}, err
}

type touchyBody struct {
	io.ReadCloser

	s *touchySource
}

func (b *touchyBody) Read(p []byte) (int, error) {
	b.s.at("Read")
	return b.ReadCloser.Read(p)
}

func (b *touchyBody) Close() error {
	_ = b.ReadCloser.Close()
	b.s.at("Close")
	return nil
}

// TestHazardPanicOfASourceEndsTheProcess: the methods of the source and of its
// bodies panic, and so does the callback that reports the failures.
func TestHazardPanicOfASourceEndsTheProcess(t *testing.T) {
	for _, place := range []string{"KindOf", "Watch", "Read", "Close"} {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &touchySource{Server: pooltest.NewServer(), in: place, calm: &atomic.Bool{}}
				s.Put("ns", "a", 1)
				var panics atomic.Int64
				p, err := informerpool.New(informerpool.Options{
					Source:   s,
					OnFailed: func(informerpool.Key, error) { panic("no OnFailed") },
					OnPanic:  func(string) { panics.Add(1) },
				})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				k := pooltest.Everything
				k.Kind = "" // the source is queried
				l := pooltest.Acquire(t, p, k)
				time.Sleep(10 * time.Minute)
				s.calm.Store(true)
				require.NoError(t, l.WaitForSync(t.Context()))
				require.Positive(t, panics.Load())
				time.Sleep(10 * time.Minute)
				s.Put("ns", "b", 1)
				synctest.Wait()
				require.Len(t, pooltest.Contents(t, l), 2)
			})
		})
	}
}
