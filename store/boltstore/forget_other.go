//go:build !linux

package boltstore

import "os"

// forgetPages does nothing: there is no portable way to remove pages from the page cache.
func forgetPages(*os.File) {}
