package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// tellManager tells the service manager how the process does, if that has asked for it, as systemd
// does for a unit with Type=notify: lines are assignments of sd_notify(3). Nothing depends on it,
// so a failure is logged.
func tellManager(log *slog.Logger, lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		log.Warn("cannot tell the service manager", "what", lines, "error", err)
	}
}

// tellReady tells it that the process has started.
func tellReady(log *slog.Logger, status string) {
	tellManager(log, daemon.SdNotifyReady, "STATUS="+status)
}

// tellStopping tells it that the process stops in order.
func tellStopping(log *slog.Logger) { tellManager(log, daemon.SdNotifyStopping, "STATUS=stopping") }

// tellWhenStopping calls tellStopping when ctx ends. A process that would end calls release, which
// waits until that has been told, if ctx has ended: there may have been nothing else to do.
func tellWhenStopping(ctx context.Context, log *slog.Logger) (release func()) {
	told := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(told)
		tellStopping(log)
	})
	return func() {
		if !undo() {
			<-told
		}
	}
}

// A start that takes long asks for extension more time every extendEvery.
const (
	extendEvery = 20 * time.Second
	extension   = "EXTEND_TIMEOUT_USEC=60000000"
)

// tellOpening tells it again and again, until done is closed, that the start needs more time.
func tellOpening(log *slog.Logger, done <-chan struct{}) {
	for again := time.Tick(extendEvery); ; {
		tellManager(log, extension, "STATUS=opening the store, which may have to be checked first")
		select {
		case <-again:
		case <-done:
			return
		}
	}
}
