package service

import (
	"context"
	"slices"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// runWatcher watches the tasks of a run until the client ends the call.
//
// Sequence numbers rise with every commit, so the events in the store can be sent in the order of
// their numbers. Within one commit, the news come task by task, in the order in which the commit
// first changed the tasks. So the numbers of two tasks may interleave.
type runWatcher struct {
	*shared
	*eventSender
	ctx   context.Context //nolint:containedctx // of the call; a runWatcher serves only one call
	space engine.Space
	run   string

	told uint64 // every event up to this sequence number was sent
	// toldOf: for each of these tasks, every event up to its number was sent too, as news of a
	// commit of which more is to come.
	toldOf   map[lease.TaskID]uint64
	newest   uint64 // the greatest number in toldOf since told was raised
	caughtUp uint64 // how far catchUp has sent events, until the news has a later one
}

func (s *taskService) newRunWatcher(
	ctx context.Context, f *convert.Fields, req *lessorv1.WatchTaskRequest, to *eventSender,
) (watcher, engine.Watching, error) {
	if req.GetTaskId() != "" {
		f.Fail("run_id", "is set together with task_id; set only one of them")
	}
	w := &runWatcher{
		shared: s.shared, eventSender: to, ctx: ctx, run: f.ID("run_id", req.GetRunId()),
		told: req.GetAfterSequence(), toldOf: map[lease.TaskID]uint64{},
	}
	w.space = engine.Space{
		Tenant:    gate.Identify(ctx).Tenant,
		Workspace: f.Workspace("workspace_id", req.GetWorkspaceId()),
	}
	if f.Err != nil {
		return nil, engine.Watching{}, f.Err
	}
	number, _ := s.Engine.SpaceNumber(w.space) // a workspace may get its first task later, and so may a run
	if err := s.resumable(ctx, number, req); err != nil {
		return nil, engine.Watching{}, err
	}
	logFields(ctx, "id", w.run)
	return w, engine.Watching{Space: w.space, Run: w.run}, nil
}

// catchUp sends the events that the store has when catchUp begins. Later ones come with news, for
// which the watch has subscribed before. The store also holds the events that came with news;
// catchUp does not send them again.
func (w *runWatcher) catchUp() error { return w.sendStored(nil) }

// sendStored is catchUp. For each of its transactions, it puts a token into turn unless that is
// nil.
func (w *runWatcher) sendStored(turn chan struct{}) error {
	h := runHistory{runWatcher: w, turn: turn}
	if err := w.view(h.begin); err != nil {
		return err
	}
	for len(h.parts) > 0 {
		if err := h.read(); err != nil {
			return err
		}
		for i := range h.events {
			e := &h.events[i].durableEvent
			w.told = e.seq
			safe := e.seq
			if e.missed > 0 { // the event with this number is another task's, and is sent after the note
				safe--
			}
			w.sequence = max(w.sequence, safe)
			if err := w.durable(e); err != nil {
				return err
			}
		}
		w.told = h.bound
		h.forget()
	}
	w.caughtUp = w.told
	clear(w.toldOf)
	return nil
}

func (w *runWatcher) tell(n *engine.News) error {
	if n.Task == nil {
		return w.deleted(n.ID)
	}
	if err := w.version(n); err != nil {
		return err
	}
	if n.Feed == nil {
		w.endCommit(n)
		return nil
	}
	state, err := w.stateOf(n.Task)
	if err != nil {
		return err
	}
	return w.feed(n, state)
}

// endCommit notes the end of a commit, after the last of its news that has events. News of progress
// does not tell of an end: the event of their task may follow.
func (w *runWatcher) endCommit(n *engine.News) {
	if n.Later == 0 && w.newest > w.told {
		w.told, w.caughtUp = w.newest, 0
		clear(w.toldOf)
	}
}

// stateOf returns the state that goes with volatile news of a task, of which t is the version at
// that time. If catchUp has sent a later event of the task meanwhile, it is the state after that
// event, because the news of the event will send nothing that corrects an older state.
func (w *runWatcher) stateOf(t *lease.Task) (lease.State, error) {
	if t.LastSeq() >= w.caughtUp || w.toldOf[t.ID] != 0 {
		return t.State(), nil
	}
	var now *lease.Task
	err := w.view(func(r store.Reader) (err error) {
		now, err = records.Task(r, t.ID)
		return err
	})
	if err != nil || now == nil { // if it is deleted, the news of that follows
		return t.State(), err
	}
	for _, e := range slices.Backward(now.Events()) {
		if e.Seq <= w.told && e.Seq > t.LastSeq() {
			return e.State, nil
		}
	}
	w.toldOf[t.ID] = w.told // catchUp has sent nothing later: do not look again
	return t.State(), nil
}

// version sends those events of the version of a task in an item of news that were not sent yet.
// Other tasks of the same commit may follow, and their sequence numbers may be lower. So the client
// may resume only before the lowest of these.
func (w *runWatcher) version(n *engine.News) error {
	t := n.Task
	fresh := unsentEvents(t, max(w.told, w.toldOf[t.ID]))
	for i := range fresh {
		safe := fresh[i].seq
		if n.Later != 0 {
			safe = min(safe, n.Later-1)
		}
		w.sequence = max(w.sequence, safe)
		if err := w.durable(&fresh[i]); err != nil {
			return err
		}
		w.toldOf[t.ID], w.newest = fresh[i].seq, max(w.newest, fresh[i].seq)
	}
	return nil
}

func (w *runWatcher) skipped(n, gone int) error {
	if err := w.missed("", n, gone); err != nil {
		return err
	}
	return w.sendStored(w.behind)
}
