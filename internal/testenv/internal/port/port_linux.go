// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// Reserve reserves a free port. It binds a socket that never listens, so the
// kernel neither assigns the port to a listener on port 0 nor uses it as the
// local port of an outgoing connection. Without the socket, that would happen
// now and then to the port of a server that is briefly down.
func Reserve() (*Reservation, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("socket", err))
	}
	number, err := bind(fd)
	if err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	// Only once, because the number of a closed descriptor may be reused.
	release := sync.OnceValue(func() error { return os.NewSyscallError("close", syscall.Close(fd)) })

	return &Reservation{port: number, release: release}, nil
}

func bind(fd int) (int, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return name.(*syscall.SockaddrInet4).Port, nil
}
