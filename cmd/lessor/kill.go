//go:build !faults

package main

import "github.com/lessor-dev/lessor/store"

// killable does something only in tests of crashes, see kill_faults.go.
func killable(st store.Store) store.Store { return st }
