// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// install makes name, in dir, a program that envtest can run: this program's
// own image, which becomes the given program in [launch]. It returns the path.
func install(dir, name, program string) (string, error) {
	path := filepath.Join(dir, name)
	// The image, and not its path: a test binary may be deleted while it runs.
	if err := os.Symlink(fmt.Sprintf("/proc/%d/exe", os.Getpid()), path); err != nil {
		return "", err
	}
	return path, os.Symlink(program, path+realSuffix)
}

// launch replaces this process by the program, which the kernel kills as soon
// as the thread that started the launcher is gone. envtest offers no place to
// ask for that, and only the process itself can, unless its parent does at
// fork.
func launch(program string) {
	const prSetPdeathsig = 1
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetPdeathsig, uintptr(syscall.SIGKILL), 0); errno != 0 {
		fmt.Fprintln(os.Stderr, "prctl:", errno)
		os.Exit(1)
	}
	// argv[0] stays a path in the directory of the Env: by it the watchdog
	// knows what it may kill.
	err := syscall.Exec(program, os.Args, os.Environ())
	fmt.Fprintf(os.Stderr, "exec %s: %v\n", program, err)
	os.Exit(1)
}

// ownImage is the path by which a process can run itself once more.
func ownImage() (string, error) { return "/proc/self/exe", nil }
