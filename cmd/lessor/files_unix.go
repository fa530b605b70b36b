//go:build unix

package main

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"syscall"
)

// openFiles returns how many files the process may have open; the runtime has raised that limit as
// far as it may. 0 means that it is not known.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	if limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}

// warnExposed logs a warning if every user of the machine may read the file of a flag, which holds
// a secret. file may be empty. A file that cannot be read is somebody else's error, and a pipe is
// read only once.
func warnExposed(log *slog.Logger, flag, file string) {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 {
		return
	}
	log.Warn("every user of this machine may read a secret file",
		"flag", flag, "file", file, "mode", fmt.Sprintf("%04o", info.Mode().Perm()), "want", "0600 or 0640")
}
