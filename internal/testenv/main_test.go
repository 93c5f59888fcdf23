// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// withoutBinaries sets up an environment in which a build would take forever.
func withoutBinaries(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\nexec sleep 600\n"), 0o755))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("XDG_DATA_HOME", dir)
}

func TestAnEndlessBuildEndsBeforeGoTestKillsTheBinary(t *testing.T) {
	withoutBinaries(t)
	const limit = 10 * time.Minute
	almost := time.Now().Add(-limit - 40*time.Second + 100*time.Millisecond)
	err := testenv.Prepare(almost, limit)
	require.ErrorContains(t, err, "go test would kill this test binary now")
	require.ErrorContains(t, err, "go run ./internal/testenv/install")
}

func TestTheTimeATestWaitsForABuildIsTakenFromItsOwn(t *testing.T) {
	withoutBinaries(t)
	var f fakeTB
	f.deadline = time.Now().Add(200 * time.Millisecond)
	done := make(chan struct{})
	go func() {
		defer close(done)
		testenv.Start(&f, 1)
	}()
	<-done
	require.Contains(t, f.failed, "no clusters")
	require.Contains(t, f.failed, "the test's time is up")
}

func TestWhatABuildTookIsTakenFromTheTimeOut(t *testing.T) {
	given := flag.Lookup("test.timeout").Value.String()
	defer func() { require.NoError(t, flag.Set("test.timeout", given)) }()
	const limit = 10 * time.Minute
	for waited, left := range map[time.Duration]time.Duration{
		time.Second:      limit, // within the go command's grace period
		5 * time.Minute:  limit - 5*time.Minute + 40*time.Second,
		20 * time.Minute: time.Second,
	} {
		require.NoError(t, flag.Set("test.timeout", limit.String()))
		require.NoError(t, testenv.Prepare(time.Now().Add(-waited), limit))
		got, err := time.ParseDuration(flag.Lookup("test.timeout").Value.String())
		require.NoError(t, err)
		require.InDelta(t, left.Seconds(), got.Seconds(), 5)
	}
}
