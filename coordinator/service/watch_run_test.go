package service

import (
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// commitNews commits what has happened, and returns the news of that as the engine sends it: one
// item for each task, in the order in which they first changed.
func (w *pastWorld) commitNews() (news []*engine.News) {
	first := map[lease.TaskID]uint64{} // the first event of each task in the commit
	for _, n := range w.news {
		i := slices.IndexFunc(news, func(of *engine.News) bool { return of.ID == n.ID })
		if i < 0 {
			news = append(news, n)
			if n.Task != nil {
				first[n.ID] = n.Task.LastSeq()
			}
			continue
		}
		news[i] = n
	}
	var later uint64
	for _, n := range slices.Backward(news) {
		n.Later = later
		if seq := first[n.ID]; n.Task != nil && (later == 0 || seq < later) {
			later = seq
		}
	}
	w.news = nil
	w.commit()
	return news
}

// watchModel is what a client of a watch of the run knows.
type watchModel struct {
	*pastWorld
	seed  uint64
	sent  map[string]bool
	noted map[string]bool   // ids of tasks with events that are no longer kept
	last  map[string]uint64 // the newest event of each task
	at    uint64            // where it may resume
}

// receive checks a message: no event comes twice, those of a task come in order, and all events up
// to the sequence of the message have come.
func (w *watchModel) receive(m *lessorv1.WatchTaskResponse) {
	if m.GetSequence() < w.at {
		w.Errorf("seed %d: the sequence falls from %d to %d", w.seed, w.at, m.GetSequence())
	}
	w.at = m.GetSequence()
	id, _ := lease.ParseTaskID(m.GetTaskId())
	switch {
	case m.GetMissed().GetDurable() > 0:
		w.noted[id.String()] = true
	case m.GetHistory() != nil:
		seq := m.GetHistory().GetSequence()
		if w.sent[eventName(id, seq)] || seq <= w.last[id.String()] {
			w.Errorf("seed %d: event %d of %v comes twice, or after event %d", w.seed, seq, id, w.last[id.String()])
		}
		w.sent[eventName(id, seq)], w.last[id.String()] = true, seq
	}
	w.wantSent(w.at)
}

// wantSent checks that all events up to a number have been sent that are still kept.
func (w *watchModel) wantSent(upTo uint64) {
	for id, task := range w.tasks {
		for _, e := range task.Events() {
			if task.Spec.RunID == "run" && e.Seq <= upTo && !w.sent[eventName(id, e.Seq)] && !w.noted[id.String()] {
				w.Fatalf("seed %d: event %d of %v was not sent, although the watch is at %d", w.seed, e.Seq, id, upTo)
			}
		}
	}
}

// S5: a watch of a run sends each event once, whatever the commits have in common, and however much
// news it misses because its client is slow. The client may resume after any message.
func TestWatchOfARunSendsEveryEventOnce(t *testing.T) {
	t.Attr("rules", "S5 T10")
	for seed := range uint64(200) {
		w := &watchModel{
			pastWorld: newPastWorld(t, seed), seed: seed, sent: map[string]bool{},
			noted: map[string]bool{}, last: map[string]uint64{},
		}
		for range w.IntN(30) {
			w.live()
		}
		w.commitNews()
		watch := w.watch(w.receive)
		err := watch.catchUp()
		var waiting []*engine.News
		for range 30 {
			for range w.IntN(8) {
				w.live()
			}
			waiting = append(waiting, w.commitNews()...)
			for err == nil && len(waiting) > 0 && w.IntN(4) > 0 {
				missed := 0
				if w.IntN(8) == 0 {
					missed = w.IntN(len(waiting))
				}
				err = passOn(watch, waiting[missed], engine.Missed{All: missed})
				waiting = waiting[missed+1:]
			}
		}
		for _, n := range waiting {
			if err == nil {
				err = watch.tell(n)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		w.wantSent(w.seq)
	}
}
