// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// TestGateRefusesAndDelaysWrites: reads pass, and what is refused does not reach
// the hub.
func TestGateRefusesAndDelaysWrites(t *testing.T) {
	var requests atomic.Int64
	hub := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer hub.Close()
	g, err := newGate(&rest.Config{Host: hub.URL})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.close()) }()
	config := g.config()
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	require.NoError(t, err)
	read := func() error { return client.Get().AbsPath("/x").Do(t.Context()).Error() }
	write := func() error {
		return client.Patch(types.MergePatchType).AbsPath("/x").Body([]byte("{}")).Do(t.Context()).Error()
	}

	require.NoError(t, read())
	require.NoError(t, write())
	for code, is := range map[int]func(error) bool{
		http.StatusNotFound: apierrors.IsNotFound,
		http.StatusConflict: apierrors.IsConflict,
	} {
		requests.Store(0)
		g.set(trouble{refuse: code})
		require.True(t, is(write()))
		require.NoError(t, read())
		require.Equal(t, 1, g.set(trouble{}))
		require.Equal(t, int64(1), requests.Load())
	}

	g.set(trouble{delay: 50 * time.Millisecond})
	begin := time.Now()
	require.NoError(t, write())
	require.GreaterOrEqual(t, time.Since(begin), 50*time.Millisecond)
	require.Equal(t, 1, g.set(trouble{}))

	hub.Close()
	require.Error(t, read())
}
