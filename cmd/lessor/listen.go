package main

import (
	"errors"
	"io/fs"
	"net"
	"syscall"
)

// listenTCP opens a listener on the address that a flag gives.
func listenTCP(flag, addr string) (net.Listener, error) {
	if err := checkHostPort(flag, addr); err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, listenError(flag, addr, err)
	}
	return lis, nil
}

func listenError(flag, addr string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fail(exitCannotStart, "another lessor may be running; choose another address with --"+flag,
			"%s is in use", addr)
	case errors.Is(err, fs.ErrPermission):
		return fail(exitCannotStart, "ports below 1024 need root", "not permitted to listen on %s", addr)
	case tooManyFiles(err):
		return fail(exitCannotStart, hintOpenFiles, "cannot listen on %q: %v", addr, bareNetError(err))
	}
	return fail(exitCannotStart, "--"+flag+" is HOST:PORT, where HOST is an address of this machine",
		"cannot listen on %q: %v", addr, bareNetError(err))
}

// bareNetError returns a network error without its operation and address, because the message
// already has them.
func bareNetError(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}
