// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

var (
	errNoLease = errors.New("this replica has no valid Lease")
	errNoShare = errors.New("this replica has no share of the clusters yet")
)

// ReadyzCheck returns a check for a manager's AddReadyzCheck, which
// clustercache.SetupWithManager adds as well. It succeeds while the replica owns
// its share, and all subscribers have filled the caches of what it owns or
// stands by for, so that a rolling update may go on to the next replica. A
// cluster that cannot be reached delays nothing. It fails again while slots move
// to the replica, while the hub is away, and once Start ends. It does not block.
func (s *Sharding) ReadyzCheck() healthz.Checker {
	return func(*http.Request) error {
		share := s.share.Load()
		switch {
		case !before(time.Now(), s.table.Load().until):
			return errNoLease
		case !share.Planned:
			return errNoShare
		case share.Unowned > 0:
			return fmt.Errorf("this replica does not own %d slots of its share yet", share.Unowned)
		case share.Cold > 0:
			return fmt.Errorf("the caches of %d slots are not filled yet", share.Cold)
		}
		return nil
	}
}
