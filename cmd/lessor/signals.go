package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signals turns the first signal to stop into the end of soft and the second into the end of hard.
type signals struct {
	soft, hard context.Context
	stop       func()
}

func newSignals() signals {
	soft, softly := context.WithCancelCause(context.Background())
	hard, hardly := context.WithCancelCause(context.Background())
	received := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	// Caught, a broken pipe is an error of the write, after which there is an orderly end.
	brokenPipe := make(chan os.Signal, 1)
	signal.Notify(brokenPipe, syscall.SIGPIPE)
	go func() {
		for _, cancel := range []context.CancelCauseFunc{softly, hardly} {
			select {
			case sig := <-received:
				cancel(&interruptedError{signal: sig})
			case <-done:
				return
			}
		}
	}()
	return signals{soft: soft, hard: hard, stop: func() {
		signal.Stop(received)
		signal.Stop(brokenPipe)
		close(done)
		softly(nil)
		hardly(nil)
	}}
}

// interruptedError is the cause with which the contexts of app end.
type interruptedError struct{ signal os.Signal }

func (e *interruptedError) Error() string { return "stopped by a signal: " + e.signal.String() }

// exitCode is the one that shells give to a program that died of the signal.
func (e *interruptedError) exitCode() int {
	if number, ok := e.signal.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return exitFailed
}
