// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package assets

import "syscall"

// dieWithParent has no equivalent here: if this process is killed, the build
// continues, and only fills Go's build cache.
func dieWithParent() *syscall.SysProcAttr { return nil }
