// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package identity

import "errors"

// Epoch identifies a cluster's history: resourceVersions are comparable only
// within one epoch.
type Epoch string

// ErrEpochChanged indicates that the cluster's resourceVersions are no longer
// comparable with those a request was made for: another cluster answers at the
// endpoint, or its history was rolled back.
var ErrEpochChanged = errors.New("epoch changed")
