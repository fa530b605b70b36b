package main

import (
	"bytes"
	"context"
	"io"
	"time"
)

// givingUp is a writer that does not outlast the command: if the command has to stop at once, it gives up a write that is stuck, because nobody reads the
// pipe or somebody has halted the terminal, and all later ones. It must not be used by several goroutines at once.
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
	type result struct {
		n   int
		err error
	}
	p = bytes.Clone(p) // a stuck write keeps it
	written := make(chan result, 1)
	go func() {
		n, err := g.to.Write(p)
		written <- result{n, err}
	}()
	select {
	case r := <-written:
		return r.n, r.err
	case <-g.app.stopNow.Done():
	}
	select {
	case r := <-written:
		return r.n, r.err
	case <-time.After(stuckAfter):
		g.err = context.Cause(g.app.ctx)
		return 0, g.err
	}
}
