//go:build !race

package main

import (
	"io"
	"testing"
)

// A task of a list is written as JSON with hardly more allocations than protojson makes: lists of
// many thousand tasks are piped into other programs.
func TestAllocationsOfAListedTask(t *testing.T) {
	list, task := newTaskListing(&app{streams: streams{out: io.Discard}, json: true}), listedTask()
	var err error
	if n := testing.AllocsPerRun(100, func() { err = list.add(task) }); err != nil || n > 75 {
		t.Errorf("%v allocations (%v), want at most 75", n, err)
	}
}
