package certs

import (
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// readPair reads a certificate and its key.
func readPair(files Files) (pair tls.Certificate, err error) {
	cert, err := readFile(files.Cert)
	if err != nil {
		return pair, err
	}
	key, err := readFile(files.Key)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(cert, key)
}

// errNoWriter is the error for a pipe without a writer.
var errNoWriter = errors.New("it is a pipe, and no program writes to it")

// readFile reads a file. It may be a pipe, for example a process substitution of the shell. Opened in the usual way, a pipe without a writer would hang the
// caller. The error for a file that cannot be read is a *fs.PathError.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeNamedPipe == 0 {
		return os.ReadFile(name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if err := syscall.SetNonblock(int(f.Fd()), false); err != nil { // macOS would return EAGAIN while the pipe has a writer and is empty
		return nil, err
	}
	text, err := io.ReadAll(f)
	if err == nil && len(text) == 0 {
		err = &fs.PathError{Op: "read", Path: name, Err: errNoWriter}
	}
	return text, err
}
