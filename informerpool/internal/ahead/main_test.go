// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ahead_test

import (
	"os"
	"testing"

	"github.com/fleetcache/fleetcache/internal/repeat"
)

func TestMain(m *testing.M) {
	repeat.CollectRarely()
	os.Exit(m.Run())
}
