// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package remote

// UpdateAtOnce makes the recorder write each event of a series.
func (r *Recorder) UpdateAtOnce() { r.between = 0 }
