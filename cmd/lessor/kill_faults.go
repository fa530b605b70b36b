//go:build faults

package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/lessor-dev/lessor/store"
)

// killable ends this process by SIGKILL at the commit that LESSOR_FAULT_KILL names: "before put lease 3" or "after delete task 1" is the third
// commit that puts a lease, or the first that deletes a task; before it begins, or after it is durable and before anybody is told.
func killable(st store.Store) store.Store {
	text := os.Getenv("LESSOR_FAULT_KILL")
	if text == "" {
		return st
	}
	k := &killing{Store: st}
	if _, err := fmt.Sscan(text, &k.when, &k.change, &k.keyspace, &k.left); err != nil {
		panic(fmt.Sprintf("LESSOR_FAULT_KILL: %q: %v", text, err))
	}
	return k
}

// killing is a store whose commits are counted.
type killing struct {
	store.Store
	when, change, keyspace string
	left                   int
}

// Commit implements store.Store.
func (k *killing) Commit(ctx context.Context, b *store.Batch) error {
	if k.meant(b) {
		k.left--
	}
	if k.left == 0 && k.when == "before" {
		die()
	}
	err := k.Store.Commit(ctx, b)
	if k.left == 0 {
		die()
	}
	return err
}

// meant reports whether b has a change of the kind.
func (k *killing) meant(b *store.Batch) bool {
	for i := range b.Len() {
		if op := b.At(i); op.Keyspace.String() == k.keyspace && op.Delete == (k.change == "delete") {
			return true
		}
	}
	return false
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // it takes a moment
}
