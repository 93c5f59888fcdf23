// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// install creates a program called name in dir that envtest can run. It is this
// program's own image, which [launch] replaces with the given program. install
// returns its path.
func install(dir, name, program string) (string, error) {
	path := filepath.Join(dir, name)
	// The image rather than its path, because a test binary may be deleted
	// while it runs.
	if err := os.Symlink(fmt.Sprintf("/proc/%d/exe", os.Getpid()), path); err != nil {
		return "", err
	}
	return path, os.Symlink(program, path+realSuffix)
}

// launch replaces this process with the program, and makes the kernel kill it
// as soon as the thread that started the launcher ends. envtest has no hook for
// requesting that, and only the process itself can do so, or its parent when it
// forks.
func launch(program string) {
	const prSetPdeathsig = 1
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetPdeathsig, uintptr(syscall.SIGKILL), 0); errno != 0 {
		fmt.Fprintln(os.Stderr, "prctl:", errno)
		os.Exit(1)
	}
	// argv[0] remains a path in the directory of the Env, by which the watchdog
	// recognizes the processes that it may kill.
	err := syscall.Exec(program, os.Args, lazily(os.Environ()))
	fmt.Fprintf(os.Stderr, "exec %s: %v\n", program, err)
	os.Exit(1)
}

// lazily returns the environment of a server: one that lives for seconds spends a
// fifth of its start on collecting garbage. The limit bounds what not doing so
// costs in memory. Of two values of a variable, a Go program uses the first.
func lazily(environ []string) []string {
	return append(environ, "GOGC=400", "GOMEMLIMIT=400MiB")
}

// ownImage returns a path by which a process can run itself again.
func ownImage() (string, error) { return "/proc/self/exe", nil }
