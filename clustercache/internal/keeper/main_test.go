// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if server := os.Getenv(victimServer); server != "" {
		victim(server, os.Getenv(victimFile)) // until it is killed
	}
	goleak.VerifyTestMain(m)
}
