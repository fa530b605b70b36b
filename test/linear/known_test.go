//go:build faults

package linear

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
)

// known is what a client process knows: a few of its newest tasks and leases. They are few, so that
// calls of different workers meet.
type known struct {
	mu     sync.Mutex
	tasks  []knownTask
	leases []heldLease
	made   int
}

type knownTask struct{ name, id string }

type heldLease struct {
	knownTask
	lease   string
	attempt uint32
}

// How many tasks and leases are remembered.
const (
	knownTasks  = 3
	knownLeases = 5
)

// or returns want, or a submit or a lease if nothing is known yet that want could be about.
func (k *known) or(want kind) kind {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case len(k.tasks) == 0:
		return submit
	case len(k.leases) == 0 && onLease(want):
		return lease
	}
	return want
}

func onLease(k kind) bool {
	switch k {
	case start, heartbeat, complete, fail, release:
		return true
	}
	return false
}

// pick chooses what a call is about, and the content of a report.
func (k *known) pick(r *rand.Rand, o *op) (id, held string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case o.Kind == lease:
		return "", ""
	case o.Kind == submit:
		o.Task = k.name(r)
		return "", ""
	case onLease(o.Kind):
		l := newest(r, k.leases)
		o.Task, o.Attempt, o.Content = l.name, l.attempt, contents[r.IntN(len(contents))]
		if o.Kind == start || o.Kind == heartbeat {
			o.Content = ""
		}
		return l.id, l.lease
	}
	t := newest(r, k.tasks)
	o.Task = t.name
	return t.id, ""
}

// name returns a new name, or again that of the last submit, which may be repeated (T1).
func (k *known) name(r *rand.Rand) string {
	if k.made == 0 || r.IntN(3) > 0 {
		k.made++
	}
	return fmt.Sprintf("%s-%d", os.Getenv(clientName), k.made)
}

// newest returns the last one half of the time, else any of them.
func newest[T any](r *rand.Rand, all []T) T {
	if r.IntN(2) == 0 {
		return all[len(all)-1]
	}
	return all[r.IntN(len(all))]
}

func (k *known) addTask(t knownTask) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, old := range k.tasks {
		if old == t {
			return
		}
	}
	k.tasks = keep(append(k.tasks, t), knownTasks)
}

func (k *known) addLease(l heldLease) {
	k.addTask(l.knownTask)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leases = keep(append(k.leases, l), knownLeases)
}

// keep returns the last n.
func keep[T any](all []T, n int) []T { return all[max(0, len(all)-n):] }
