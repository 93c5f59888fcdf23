// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restarting_test

import (
	"log"
	"os"
	"testing"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) {
	if given := os.Getenv(victimVariable); given != "" {
		if err := playVictim(given); err != nil {
			log.Fatal(err)
		}
		return
	}
	testenv.Main(m, testenv.VerifyNoLeaks())
}
