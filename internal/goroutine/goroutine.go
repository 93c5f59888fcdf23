// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package goroutine tells goroutines apart.
package goroutine

import (
	"bytes"
	"runtime"
	"strconv"
)

// ID returns the number that the runtime prints for the calling goroutine. It
// is used for one thing: to see that a handler closes what it is being called
// by, which must not wait for itself. It costs about a microsecond.
func ID() uint64 {
	var buf [64]byte
	line := buf[:runtime.Stack(buf[:], false)]
	line = bytes.TrimPrefix(line, []byte("goroutine "))
	number, _, _ := bytes.Cut(line, []byte(" "))
	id, _ := strconv.ParseUint(string(number), 10, 64)
	return id
}
