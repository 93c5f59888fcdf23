// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package callback

import (
	"bytes"
	"runtime"
	"strconv"
)

// Goroutine returns the number that the runtime prints for the calling
// goroutine. It has a single use: to detect that a handler closes the component
// that is calling it, in which case Close must not wait for the handler. It
// costs about a microsecond.
func Goroutine() uint64 {
	var buf [64]byte
	line := buf[:runtime.Stack(buf[:], false)]
	line = bytes.TrimPrefix(line, []byte("goroutine "))
	number, _, _ := bytes.Cut(line, []byte(" "))
	id, _ := strconv.ParseUint(string(number), 10, 64)

	return id
}
