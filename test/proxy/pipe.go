package proxy

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// most is the longest time that a frame is held up. It is much shorter than any lease: a worker
	// counts the time of a grant from its arrival.
	most = 50 * time.Millisecond
	// tearing is how long a tear is waited for, as the bytes of the frame may wait in gRPC.
	tearing = time.Second
)

// pipe is one direction of a stream. One goroutine receives and another one sends, as gRPC
// requires.
type pipe[M any] struct {
	p         *Proxy
	direction Direction
	recv      func() (*M, error)
	send      func(*M) error
	to        *conn
	opening   func(*M) bool // the frame opens the session; it is not dropped, since nobody would repeat it
	rand      *rand.Rand

	held *M // to be overtaken by the next frame
}

// run lets frames pass until one end is gone. The error is that of the receiving end.
func (p *pipe[M]) run(ctx context.Context) error {
	frames, ended := make(chan *M), make(chan error, 1)
	go func() { ended <- p.receive(ctx, frames) }()
	for {
		select {
		case m := <-frames:
			if err := p.pass(ctx, m); err != nil {
				return err
			}
		case err := <-ended:
			_ = p.release() // the sending end may be gone, too
			return err
		case <-p.heldTooLong():
			if err := p.release(); err != nil {
				return err
			}
		}
	}
}

func (p *pipe[M]) receive(ctx context.Context, frames chan<- *M) error {
	for {
		m, err := p.recv()
		if err != nil {
			return err
		}
		select {
		case frames <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// heldTooLong fires when a held frame was not overtaken in time.
func (p *pipe[M]) heldTooLong() <-chan time.Time {
	if p.held == nil {
		return nil
	}
	return time.After(most)
}

// release sends the held frame.
func (p *pipe[M]) release() error {
	m := p.held
	if p.held = nil; m == nil {
		return nil
	}
	return p.send(m)
}

// pass draws a fault for a frame, and applies it.
func (p *pipe[M]) pass(ctx context.Context, m *M) error {
	p.p.frames[p.direction].Add(1)
	f, ok := p.p.rates.draw(p.rand.Float64())
	if !ok || p.p.faultless.Load() || f == Drop && p.opening(m) {
		return p.overtake(m)
	}
	if f == Reorder && p.held == nil {
		p.held = m
		return nil
	}
	if err := p.apply(ctx, m, f); err != nil {
		return err
	}
	if f != Reorder {
		p.countFault(f)
	}
	return p.release()
}

// overtake sends a frame, and then the held one that was to come before it.
func (p *pipe[M]) overtake(m *M) error {
	if err := p.send(m); err != nil {
		return err
	}
	if p.held != nil {
		p.countFault(Reorder)
	}
	return p.release()
}

func (p *pipe[M]) countFault(f Fault) { p.p.landed[p.direction][f].Add(1) }

// apply applies a fault that concerns only this frame.
func (p *pipe[M]) apply(ctx context.Context, m *M, f Fault) error {
	switch f {
	case Drop:
		return nil
	case Duplicate:
		if err := p.send(m); err != nil {
			return err
		}
	case Delay:
		time.Sleep(time.Duration(p.rand.Int64N(int64(most))))
	case Cut:
		p.countFault(f)
		return errCut
	case Tear:
		return p.tear(ctx, m)
	}
	return p.send(m)
}

// tear lets part of a frame go on.
func (p *pipe[M]) tear(ctx context.Context, m *M) error {
	torn := p.to.tear(p.rand.Float64())
	if err := p.send(m); err != nil {
		return err
	}
	select {
	case <-torn:
		p.countFault(Tear)
	case <-ctx.Done():
	case <-time.After(tearing):
	}
	return errCut
}
