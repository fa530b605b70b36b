//go:build faults

package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/lessor-dev/lessor/store"
)

// killable makes the process end itself by SIGKILL at the commit that LESSOR_FAULT_KILL names:
// "before put lease 3" or "after delete task 1" is the third commit that puts a lease, or the first
// that deletes a task. The process ends before that commit begins, or after it is durable and
// before any answer is sent.
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

// killing is a store that counts its commits.
type killing struct {
	store.Store
	when, change, keyspace string
	left                   int
}

// Begin implements store.Store.
func (k *killing) Begin(ctx context.Context) (store.Tx, error) {
	tx, err := k.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &killingTx{Tx: tx, store: k}, nil
}

// killingTx is a commit of a killing store.
type killingTx struct {
	store.Tx
	store   *killing
	matched bool // it has a change of the named kind
	last    bool // it is the commit that LESSOR_FAULT_KILL names
}

func (t *killingTx) Apply(b *store.Batch) {
	t.matched = t.matched || t.store.matches(b)
	t.Tx.Apply(b)
}

func (t *killingTx) Write() error {
	if t.matched {
		t.store.left--
	}
	t.last = t.matched && t.store.left == 0
	if t.last && t.store.when == "before" {
		die()
	}
	return t.Tx.Write()
}

func (t *killingTx) Sync() error {
	err := t.Tx.Sync()
	if t.last {
		die()
	}
	return err
}

// matches reports whether b has a change of the named kind.
func (k *killing) matches(b *store.Batch) bool {
	for i := range b.Len() {
		if op := b.At(i); op.Keyspace.String() == k.keyspace && op.Delete == (k.change == "delete") {
			return true
		}
	}
	return false
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal arrives
}
