package main

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/lessor-dev/lessor/internal/await"
)

// givingUp is a writer that does not outlast the command: if the command has to stop at once, it
// gives up a write that is stuck, because nobody reads the pipe or somebody has halted the
// terminal, and all later ones. It must not be used by several goroutines at once.
type givingUp struct {
	to  io.Writer
	app *app
	err error // of every write, once one was given up
}

// stuckAfter is how long a write may take when the command has to stop at once.
const stuckAfter = time.Second

func (g *givingUp) Write(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	p = bytes.Clone(p) // a stuck write keeps it
	var n int
	var err error
	if !await.Return(g.app.stopNow, stuckAfter, func() { n, err = g.to.Write(p) }) {
		g.err = context.Cause(g.app.ctx)
		return 0, g.err
	}
	return n, err
}

// unansweredAfter is how long reports of a worker may wait for their verdicts when the command has
// to stop at once.
const unansweredAfter = 5 * time.Second

// closeUnanswered closes the connection of a worker that does not end when the command has to stop
// at once, because the coordinator does not answer. A worker without its connection ends. release
// must be called when the worker has ended.
func (a *app) closeUnanswered(conn io.Closer) (release func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(a.stopNow, func() {
		select {
		case <-time.After(unansweredAfter):
			_ = conn.Close()
		case <-ended:
		}
	})
	return func() {
		stop()
		close(ended)
	}
}
