//go:build !linux

package boltstore

import "os"

// forgetPages knows no way.
func forgetPages(*os.File) {}
