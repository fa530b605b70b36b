package exhaustive

import (
	"fmt"
	"strings"
	"testing"
)

// search visits every world of a scope, those with the fewest moves first, so that a fault is shown
// with the shortest sequence of moves that leads to it.
type search struct {
	scope *scope
	known map[key]origin
	next  []found
	moves int
	err   error
}

// found is a world that is not visited yet.
type found struct {
	key   key
	world *world
}

// origin says how a world was first reached.
type origin struct {
	from key
	move string
}

func (s *scope) run(t *testing.T) {
	f := &search{scope: s, known: map[key]origin{}}
	f.add(key{}, newWorld(s), "the beginning")
	for len(f.next) > 0 && f.err == nil {
		level := f.next
		f.next = nil
		for _, w := range level {
			if f.visit(w.key, w.world); f.err != nil {
				break
			}
		}
	}
	if f.err != nil {
		t.Fatal(f.err)
	}
	t.Logf("%s: %d states, %d moves", s.name, len(f.known), f.moves)
	s.states = len(f.known)
}

func (f *search) add(from key, w *world, move string, args ...any) {
	k := w.key()
	if _, seen := f.known[k]; seen {
		return
	}
	f.known[k] = origin{from, fmt.Sprintf(move, args...)}
	f.next = append(f.next, found{k, w})
}

func (f *search) visit(from key, w *world) {
	if err := f.scope.checkDrain(w); err != nil {
		f.fail(from, "all fall silent, then do as they should", err)
		return
	}
	f.scope.moves(w, func(next *world, err error, move string, args ...any) {
		f.moves++
		if err != nil {
			f.fail(from, fmt.Sprintf(move, args...), err)
			return
		}
		f.scope.reached.note(w, next)
		f.add(from, next, move, args...)
	})
}

// fail keeps the first fault, with the moves that lead to it. From one move to the next, the names
// of tasks and workers may be exchanged, because worlds that differ only in them count as one.
func (f *search) fail(at key, move string, err error) {
	if f.err != nil {
		return
	}
	story := []string{move}
	for ; at != (key{}); at = f.known[at].from {
		story = append([]string{f.known[at].move}, story...)
	}
	f.err = fmt.Errorf("%w, after:\n  %s", err, strings.Join(story, "\n  "))
}
