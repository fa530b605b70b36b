package service

import (
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// durableEvent is an event with a sequence number: an event of a task's history, or a note that
// earlier events are no longer kept.
type durableEvent struct {
	task   lease.TaskID
	seq    uint64
	event  lease.Event
	missed uint32 // how many events are no longer kept; if it is not 0, event is not set
}

// unsentEvents returns the events of a task after a sequence number. If events in between may no
// longer be kept, a note with their number comes first. The number is an upper bound, because some
// of these events may have been sent before they were dropped.
func unsentEvents(t *lease.Task, after uint64) []durableEvent {
	events := t.Events()
	var all []durableEvent
	if len(events) > 0 && convert.MissingEvents(t) > 0 && after+1 < events[0].Seq {
		all = append(all, durableEvent{task: t.ID, seq: events[0].Seq - 1, missed: convert.MissingEvents(t)})
	}
	for _, e := range events {
		if e.Seq > after {
			all = append(all, durableEvent{task: t.ID, seq: e.Seq, event: e})
		}
	}
	return all
}

// eventSender sends the events of a watch.
type eventSender struct {
	send     func(*lessorv1.WatchTaskResponse) error
	sequence uint64 // the client may resume after this sequence number
	sub      uint64 // number of volatile events sent since the last durable one
}

// durable sends an event that has a sequence number. Before the call, the caller sets s.sequence.
func (s *eventSender) durable(e *durableEvent) error {
	s.sub = 0
	m := &lessorv1.WatchTaskResponse{TaskId: e.task.String(), Sequence: s.sequence}
	if e.missed > 0 {
		m.Event = &lessorv1.WatchTaskResponse_Missed{Missed: &lessorv1.Missed{Durable: uint64(e.missed)}}
	} else {
		m.TaskState = lessorv1.TaskState(e.event.State)
		m.Event = &lessorv1.WatchTaskResponse_History{History: convert.EventProto(&e.event)}
	}
	return s.send(m)
}

// volatile sends an event that has no sequence number of its own. The event gets that of the last
// durable event, and a sub-sequence number.
func (s *eventSender) volatile(m *lessorv1.WatchTaskResponse) error {
	s.sub++
	m.Sequence, m.SubSequence = s.sequence, s.sub
	return s.send(m)
}

func (s *eventSender) deleted(id lease.TaskID) error {
	return s.volatile(&lessorv1.WatchTaskResponse{
		TaskId: id.String(), Event: &lessorv1.WatchTaskResponse_Deleted{Deleted: &lessorv1.Deleted{}},
	})
}

// missed tells the client that n items of news were dropped. Of these, gone were about deleted
// tasks, and count as durable. The rest count as volatile, because a durable event among them is in
// the store and is sent after this.
func (s *eventSender) missed(taskID string, n, gone int) error {
	return s.volatile(&lessorv1.WatchTaskResponse{
		TaskId: taskID, Event: &lessorv1.WatchTaskResponse_Missed{Missed: &lessorv1.Missed{Durable: uint64(gone), Volatile: uint64(n - gone)}},
	})
}

// feed sends volatile news of a task that is in a state.
func (s *eventSender) feed(n *engine.News, in lease.State) error {
	f, id, state := n.Feed, n.ID.String(), lessorv1.TaskState(in)
	if f.Lost > 0 {
		if err := s.missed(id, f.Lost, 0); err != nil {
			return err
		}
	}
	if f.Progresses() {
		err := s.volatile(&lessorv1.WatchTaskResponse{
			TaskId: id, TaskState: state,
			Event: &lessorv1.WatchTaskResponse_Progress{Progress: convert.ProgressProto(n.Sum)},
		})
		if err != nil {
			return err
		}
	}
	for _, c := range convert.ChunksProto(f.Chunks) {
		m := &lessorv1.WatchTaskResponse{
			TaskId: id, TaskState: state, Attempt: n.Sum.Attempt,
			Event: &lessorv1.WatchTaskResponse_Chunk{Chunk: c},
		}
		if err := s.volatile(m); err != nil {
			return err
		}
	}
	return nil
}
