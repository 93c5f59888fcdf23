// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

func TestUnknownArgumentIsRefused(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, story.ExitUsage, program().Execute(t.Context(), []string{"west"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), `unknown argument "west"`)
}
