package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// catchSignals lets a command end gracefully: the first signal to stop ends a.ctx, the second ends
// a.stopNow. Commands that only ask and print do not call it: a signal ends them at once. SIGQUIT,
// Ctrl-\ of a terminal, stops at once: what a command has started, and its temporary files, must
// not outlive it.
func (a *app) catchSignals() (release func()) {
	return a.catch(syscall.SIGTERM, syscall.SIGQUIT)
}

// catchSignalsButQuit leaves SIGQUIT to the runtime, which prints what all goroutines do: so a
// coordinator that hangs can be asked why.
func (a *app) catchSignalsButQuit() (release func()) {
	return a.catch(syscall.SIGTERM)
}

// catch catches these signals and, unless they are ignored, SIGINT and SIGHUP.
func (a *app) catch(always ...os.Signal) (release func()) {
	soft, stop := context.WithCancelCause(a.ctx)
	hard, kill := context.WithCancelCause(a.stopNow)
	a.ctx, a.stopNow = soft, hard
	received, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(received, always...)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		// whoever started the command ignores it on purpose: nohup, trap "" INT, or a shell script
		// that uses &
		if !signal.Ignored(sig) {
			signal.Notify(received, sig)
		}
	}
	// If SIGPIPE is caught, a broken pipe is an error of the write, after which the command ends
	// gracefully. That stays so when the command has ended, since its error and the last lines of
	// its log come then.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go handleSignals(received, done, stop, kill)
	return func() {
		signal.Stop(received)
		close(done)
	}
}

// duplicateWindow is how long after a signal the same signal is taken for a duplicate of it.
// timeout(1) sends its signal to its command, and right after that also to the command's process
// group.
const duplicateWindow = 100 * time.Millisecond

// handleSignals ends one context with the first signal, and the other one with the second; SIGQUIT
// ends both.
func handleSignals(received <-chan os.Signal, done <-chan struct{}, stop, kill context.CancelCauseFunc) {
	var first os.Signal
	var at time.Time
	for {
		select {
		case sig := <-received:
			switch {
			case sig == syscall.SIGQUIT:
				stop(&interruptedError{signal: sig})
				kill(&interruptedError{signal: sig})
				return
			case first == nil:
				first, at = sig, time.Now()
				stop(&interruptedError{signal: sig})
			case sig != first || time.Since(at) >= duplicateWindow:
				kill(&interruptedError{signal: sig})
				return
			}
		case <-done:
			return
		}
	}
}

// interruptedError is the cause with which a signal ends the contexts of app.
type interruptedError struct{ signal os.Signal }

func (e *interruptedError) Error() string { return "stopped by a signal: " + e.signal.String() }

// exitCode returns the code that shells give to a program that died of the signal.
func (e *interruptedError) exitCode() int {
	if number, ok := e.signal.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return exitFailed
}

// stopped returns the signal that ended ctx, if one did, else err.
func stopped(ctx context.Context, err error) error {
	if signal, ok := errors.AsType[*interruptedError](context.Cause(ctx)); ok {
		return signal
	}
	return err
}
