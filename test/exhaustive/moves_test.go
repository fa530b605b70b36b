package exhaustive

import (
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// visit is given each world that a move leads to, or what the move broke.
type visit func(name string, next *world, err error)

// try makes a move on a copy of the world.
func (w *world) try(to visit, name string, do func(*world) error) {
	next := w.clone()
	err := do(next)
	to(name, next, err)
}

// moves are all that may happen next.
func (s *scope) moves(w *world, to visit) {
	if s.prompt(w) {
		w.try(to, "tick", func(n *world) error { n.pass(); return nil })
	}
	if w.steps > 0 {
		w.try(to, "commit", (*world).commit)
	}
	if w.steps < s.batch {
		s.decisions(w, to)
	}
	s.sends(w, to)
	if w.crashes < s.crashes {
		s.crashMoves(w, to)
	}
}

// prompt bounds by how much the coordinator lags: no timer waits for more than a tick.
func (s *scope) prompt(w *world) bool { return w.memory.overdue() < tick && w.disk.overdue() < tick }

func (s *scope) decisions(w *world, to visit) {
	for i, t := range w.memory.tasks {
		for _, c := range s.commands(w, t) {
			w.try(to, fmt.Sprintf("%T of task %d: %+v", c, i, c), func(n *world) error { return s.step(n, c) })
		}
	}
	for _, m := range w.net {
		for _, again := range []bool{false, true} {
			w.try(to, fmt.Sprintf("deliver %v, again %v", m, again), func(n *world) error { return s.deliver(n, m, again) })
		}
	}
}

// commands that the coordinator or a client may give on a task.
func (s *scope) commands(w *world, t *lease.Task) (all []lease.Command) {
	if at, _ := t.Due(); at != 0 && at <= now.Serving {
		all = append(all, lease.Expire{Task: t.ID})
	}
	if t.State() == lease.Ready && !t.Parked && t.Attempts < s.grants {
		for worker := range 2 {
			all = append(all, s.grant(t.ID, worker))
		}
	}
	if t.Parked {
		all = append(all, lease.Unpark{Task: t.ID})
	}
	if w.cancels < s.cancels && !t.Rest.Final() && t.Cancel == nil {
		all = append(all, lease.Cancel{Tenant: tenant, Task: t.ID})
	}
	if w.adoptions < s.adoptions && len(t.Discarded) > 0 {
		all = append(all, lease.Adopt{Tenant: tenant, Task: t.ID})
	}
	return all
}

func (s *scope) grant(task lease.TaskID, worker int) lease.Grant {
	g := lease.Grant{Task: task, Worker: workers[worker]}
	if s.stream {
		g.Session = g.Worker
	}
	return g
}

var workers = [2]string{"a", "b"}

func (s *scope) deliver(w *world, m message, again bool) error {
	if !again {
		w.lose(m)
	}
	report := m.report(s, w.told[m.task][m.attempt-1].ticket)
	return s.say(w, m, report)
}

func (s *scope) sends(w *world, to visit) {
	for _, m := range w.net {
		w.try(to, fmt.Sprintf("lose %v", m), func(n *world) error { n.lose(m); return nil })
	}
	if len(w.net) == s.inFlight {
		return
	}
	for i := range w.told {
		for j := range w.told[i] {
			for _, kind := range s.kinds {
				m := message{i, uint32(j + 1), kind}
				if w.told[i][j].ticket.Attempt != 0 && !w.inFlight(m) {
					w.try(to, fmt.Sprintf("send %v", m), func(n *world) error { n.send(m); return nil })
				}
			}
		}
	}
}

func (s *scope) crashMoves(w *world, to visit) {
	for _, written := range []bool{false, true} {
		if written && w.steps == 0 {
			continue
		}
		name := fmt.Sprintf("crash, batch written %v, invalidate %v", written, s.invalidate)
		w.try(to, name, func(n *world) error { return n.crash(s, written, s.invalidate) })
	}
}
