// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import "github.com/fleetcache/fleetcache/internal/callback"

// guarded calls a function of the options. A panic of it is an error, and so is
// the end of its goroutine, which is not the caller's: a loop that ended with it
// would answer from what it knew for ever. The function may be given secrets, so
// the error shows no value that it panicked with, but those of the runtime.
func guarded(name string, f func() error) error {
	return <-callback.Aside(name, func() error { return callback.ProtectSecret(name, f) })
}
