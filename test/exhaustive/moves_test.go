package exhaustive

import "github.com/lessor-dev/lessor/lease"

// visit is called with each world that a move leads to, or the fault that the move showed. The
// move's name is in the form of fmt.Sprintf, because few names are ever read.
type visit func(next *world, err error, move string, args ...any)

// try makes a move on a copy of the world.
func (w *world) try(to visit, do func(*world) error, move string, args ...any) {
	next := w.clone()
	err := do(next)
	to(next, err, move, args...)
}

// moves makes every move that is possible in a world.
func (s *scope) moves(w *world, to visit) {
	if s.mayTick(w) {
		w.try(to, func(n *world) error { n.passTick(); return nil }, "tick")
	}
	if w.steps > 0 {
		w.try(to, (*world).commit, "commit")
	}
	if w.steps < s.batch {
		s.decisions(w, to)
	}
	if w.crashes < s.crashes {
		s.crashMoves(w, to)
	}
}

// mayTick bounds the delay of the coordinator: time passes only if no due timer has waited for a
// tick.
func (s *scope) mayTick(w *world) bool { return w.memory.overdue() < tick && w.disk.overdue() < tick }

func (s *scope) decisions(w *world, to visit) {
	for i, t := range w.memory.tasks {
		for _, c := range s.commands(w, t) {
			w.try(to, func(n *world) error { return s.step(n, c) }, "%T of task %d: %+v", c, i, c)
		}
	}
	for i := range w.workerView {
		for j := range w.workerView[i] {
			if w.workerView[i][j].ticket.Attempt != 0 {
				s.deliveries(w, to, i, uint32(j+1))
			}
		}
	}
}

// deliveries makes a move of each message that may arrive under a lease.
func (s *scope) deliveries(w *world, to visit, task int, attempt uint32) {
	for _, kind := range s.kinds {
		m := message{task: task, attempt: attempt, kind: kind}
		w.try(to, func(n *world) error { return s.deliver(n, m) }, "%v of attempt %d of task %d", kind, attempt, task)
		if s.began && (kind.Closes() || kind == start) {
			m.began = true
			w.try(to, func(n *world) error { return s.deliver(n, m) }, "%v of attempt %d of task %d, which had begun",
				kind, attempt, task)
		}
	}
}

// commands returns what the coordinator or a client may command for a task. The state of the task
// does not limit them: the rules must refuse what does not fit.
func (s *scope) commands(w *world, t *lease.Task) (all []lease.Command) {
	if at, _ := t.Due(); at != 0 && at <= now.Serving {
		all = append(all, lease.Expire{Task: t.ID})
	}
	if t.Attempt() < s.grants {
		for worker := range 2 {
			all = append(all, s.grant(t.ID, worker))
		}
	}
	if t.Parked {
		all = append(all, lease.Unpark{Task: t.ID})
	}
	if w.cancels < s.cancels || t.Cancel != nil {
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

func (s *scope) deliver(w *world, m message) error {
	return s.judge(w, m, m.toReport(s, w.workerView[m.task][m.attempt-1].ticket))
}

func (s *scope) crashMoves(w *world, to visit) {
	for _, written := range []bool{false, true} {
		if written && w.steps == 0 {
			continue
		}
		w.try(to, func(n *world) error { return n.crash(s, written) }, "crash, batch written %v", written)
	}
}
