// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package memnet

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStopWaitsForCallsThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, returned := Listen(), false
		stop := Serve(l, &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			time.Sleep(time.Minute)
			returned = true
		})})
		client := &http.Client{Transport: &http.Transport{DialContext: l.Dial}}
		failed := make(chan error, 1)
		go func() {
			_, err := client.Get("http://x.test")
			failed <- err
		}()
		synctest.Wait()
		require.Equal(t, 1, l.Open())

		start := time.Now()
		stop()
		require.Error(t, <-failed)
		require.True(t, returned)
		require.Equal(t, time.Minute, time.Since(start))
		require.Zero(t, l.Open())
		_, err := l.Dial(t.Context(), "tcp", "x:1")
		require.Error(t, err)
	})
}
