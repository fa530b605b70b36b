//go:build unix

package main

import (
	"math"
	"syscall"
)

// openFiles returns how many files the process may have open; the runtime has raised that limit as far as it may. 0 means that it is not
// known.
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
