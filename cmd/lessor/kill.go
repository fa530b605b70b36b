//go:build !faults

package main

import "github.com/lessor-dev/lessor/store"

// killable does nothing in this build. In builds for crash tests, kill_faults.go replaces it.
func killable(st store.Store) store.Store { return st }
