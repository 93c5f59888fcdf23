// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest_test

import (
	"context"
	"fmt"
	"io"
	"testing"
)

// exampleT replaces the *testing.T of a test, which examples do not have.
type exampleT struct {
	testing.TB // its other methods are not used

	cleanups []func()
	failures []string
}

func (*exampleT) Helper()                  {}
func (*exampleT) Context() context.Context { return context.Background() }
func (*exampleT) Output() io.Writer        { return io.Discard }

func (t *exampleT) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *exampleT) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
	fmt.Println("FAIL:", t.failures[len(t.failures)-1])
}

func (t *exampleT) Fatalf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
	panic(t.failures[len(t.failures)-1])
}

// end runs the deferred functions.
func (t *exampleT) end() {
	for i := range t.cleanups {
		t.cleanups[len(t.cleanups)-1-i]()
	}
}
