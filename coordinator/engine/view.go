package engine

import "github.com/lessor-dev/lessor/lease"

// step decides one command at e.now() and applies its changes to the present batch. The Step that
// it returns has no Changes any more. A step must not run inside another step.
func (e *Engine) step(c lease.Command) lease.Step {
	out, _ := e.stepChanging(c)
	return out
}

// stepChanging is step, and reports whether anything has changed.
func (e *Engine) stepChanging(c lease.Command) (out lease.Step, changed bool) {
	out = e.rules.StepOn(e.memory, e.now(), view{e}, c)
	for i := range out.Changes {
		e.apply(&out.Changes[i])
	}
	changed = len(out.Changes) > 0
	clear(out.Changes) // so that the memory keeps no old versions alive
	e.memory.Changes, out.Changes = out.Changes[:0], nil
	return out, changed
}

// view is the read access of the rules to the state of the engine.
type view struct{ e *Engine }

func (v view) Task(id lease.TaskID) *lease.Task { return v.e.set.task(id) }

func (v view) Payload(id lease.TaskID) []byte { return v.e.set.payload(id) }

func (v view) Committed(id lease.TaskID, attempt uint32) *lease.Committed {
	return v.e.set.committed(id, attempt)
}

func (v view) Key(space uint32, key string) (lease.TaskID, lease.Digest, bool) {
	return v.e.set.key(space, key)
}

func (v view) Queue(number uint32, name string) lease.Queue {
	if q := v.e.spaces.numbered(number).queues[name]; q != nil {
		return q.state()
	}
	return lease.Queue{}
}

func (v view) Holders(number uint32, key string) lease.Holders {
	if k := v.e.spaces.numbered(number).keys[key]; k != nil {
		return k.state()
	}
	return lease.Holders{}
}

func (v view) Discarded(id lease.TaskID, attempt uint32) *lease.Result {
	return v.e.set.discarded(id, attempt)
}

func (v view) NextSeq(number uint32) uint64 {
	s := v.e.spaces.numbered(number)
	n := s.nextSeq
	s.nextSeq++
	v.e.batch().touchSpace(s)
	return n
}
