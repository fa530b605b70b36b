package session

import "sync"

// waitLock is a mutex whose holder may wait for the engine. Unlike for a sync.Mutex, fake time goes
// on in tests while a goroutine waits for one.
type waitLock struct {
	mu   sync.Mutex // guards held
	free sync.Cond  // signalled when it is unlocked
	held bool
}

// Lock implements sync.Locker.
func (l *waitLock) Lock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.free.L = &l.mu; l.held; {
		l.free.Wait()
	}
	l.held = true
}

// Unlock implements sync.Locker.
func (l *waitLock) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	l.free.Signal()
}
