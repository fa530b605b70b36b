package proxy

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// Fault is what happens to a frame.
type Fault int

// The faults.
const (
	// Drop: the frame is lost.
	Drop Fault = iota
	// Duplicate: the frame arrives twice.
	Duplicate
	// Reorder: the next frame arrives first.
	Reorder
	// Delay: the frame and all behind it arrive late.
	Delay
	// Cut: the frame is lost, and the connections on both sides are closed.
	Cut
	// Tear: part of the frame's bytes goes on, then the connections on both sides are closed.
	Tear

	faults // their number
)

var faultNames = [faults]string{"dropped", "duplicated", "reordered", "delayed", "cut before", "torn"}

// String says what happened to a frame.
func (f Fault) String() string { return faultNames[f] }

// Direction says where a frame goes.
type Direction int

// The directions.
const (
	ToCoordinator Direction = iota
	ToWorker

	directions // their number
)

// String names the direction.
func (d Direction) String() string {
	return [directions]string{"to the coordinator", "to the worker"}[d]
}

// Rates are the probabilities of the faults for each frame; other frames pass. Their sum is at most
// 1.
type Rates [faults]float64

// draw chooses the fault for a frame by a number from 0 to 1; ok is false if the frame passes.
func (r *Rates) draw(number float64) (f Fault, ok bool) {
	for f := range faults {
		if number -= r[f]; number < 0 {
			return f, true
		}
	}
	return 0, false
}

// counts counts the frames, and the faults that took effect.
type counts struct {
	landed [directions][faults]atomic.Int64
	frames [directions]atomic.Int64
}

// Landed returns how often a fault took effect on frames of a direction.
func (c *counts) Landed(d Direction, f Fault) int64 { return c.landed[d][f].Load() }

// String lists all counts.
func (c *counts) String() string {
	var b strings.Builder
	for d := range directions {
		fmt.Fprintf(&b, "\n%d frames %v:", c.frames[d].Load(), d)
		for f := range faults {
			fmt.Fprintf(&b, " %d %v,", c.Landed(d, f), f)
		}
	}
	return strings.TrimSuffix(b.String(), ",")
}

// TooRare reports each fault that took effect less often than it must; nil if there is none.
func (c *counts) TooRare(least int64) (missing []string) {
	for d := range directions {
		for f := range faults {
			if n := c.Landed(d, f); n < least {
				missing = append(missing, fmt.Sprintf("%d frames %v were %v, want at least %d", n, d, f, least))
			}
		}
	}
	return missing
}
