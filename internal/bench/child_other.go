//go:build !linux

package bench

import "syscall"

// diesWithParent has no effect: only Linux can kill a child process when its parent dies.
func diesWithParent() *syscall.SysProcAttr { return nil }
