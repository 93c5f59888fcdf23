// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// asProgram makes this test binary run as the program itself.
const asProgram = "FLEETCACHE_SHARDED_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	testenv.Main(m, testenv.VerifyNoLeaks())
}

func TestCommandLine(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"help":           {[]string{"-h"}, 0, "-away"},
		"away too short": {[]string{"-away", "29s"}, story.ExitUsage, "at least 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, tc.status, program().Execute(t.Context(), tc.args, &stdout, &stderr))
			require.Contains(t, stderr.String(), tc.says)
		})
	}
}

// TestReplicaWithoutAHubEndsWithItsReason has a process of its own.
func TestReplicaWithoutAHubEndsWithItsReason(t *testing.T) {
	t.Setenv(asProgram, "1")
	p, err := startProcess(identity{"replica-0", hubNamespace}, "does-not-exist", func(report) {})
	require.NoError(t, err)
	require.ErrorContains(t, p.wait(), "exit status 1: sharded: invalid configuration")
	require.True(t, p.ended())
	p.kill() // changes nothing
}

func TestReportsAreReadUntilTheEnd(t *testing.T) {
	var heard []report
	hear := func(r report) { heard = append(heard, r) }
	out := `{"event":"Gained","slot":3,"token":2}` + "\npanic: \n" + `{"event":"Lost","slot":3}`
	err := listen(strings.NewReader(out), hear)
	require.ErrorContains(t, err, `line "panic: "`)
	require.Equal(t, []report{{Event: "Gained", Slot: 3, Token: 2}, {Event: "Lost", Slot: 3}}, heard)
}
