package service

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// T10: a watch reports the events that were dropped from a history as missed, once.
func TestDroppedEventsAreReportedAsMissed(t *testing.T) {
	t.Attr("rules", "T10")
	task := &lease.Task{
		ID: lease.TaskID{Space: 1, Seq: 5}, Spec: &lease.Spec{}, Dropped: 3,
		History: []lease.Event{{Seq: 20, Type: lease.EventGranted}, {Seq: 22, Type: lease.EventStarted}},
	}
	for _, tt := range []struct {
		after uint64
		want  string
	}{
		{0, "19:missed 4, 20, 22"}, {7, "19:missed 4, 20, 22"}, {18, "19:missed 4, 20, 22"}, {19, "20, 22"}, {20, "22"}, {22, ""}, {99, ""},
	} {
		var got []string
		for _, e := range unsentEvents(task, tt.after) {
			if e.missed > 0 {
				got = append(got, fmt.Sprintf("%d:missed %d", e.seq, e.missed))
			} else {
				got = append(got, fmt.Sprint(e.event.Seq))
			}
		}
		if s := strings.Join(got, ", "); s != tt.want {
			t.Errorf("after %d: %s, want %s", tt.after, s, tt.want)
		}
	}
}

// A watch of a run sends the changes of one commit task by task, so that the sequences of their
// events may interleave. It sends no event twice, and no event has a sequence from which a resume
// would skip another event of the commit.
func TestEventsOfOneCommitMayInterleave(t *testing.T) {
	var got []string
	w := &runWatcher{toldOf: map[lease.TaskID]uint64{}, caughtUp: 1, eventSender: &eventSender{send: func(m *lessorv1.WatchTaskResponse) error {
		got = append(got, fmt.Sprintf("%d resume %d", m.GetHistory().GetSequence(), m.GetSequence()))
		return nil
	}}}
	version := func(later, id uint64, seqs ...uint64) *engine.News {
		task := &lease.Task{ID: lease.TaskID{Space: 1, Seq: id}, Spec: &lease.Spec{}}
		for _, seq := range seqs {
			task.History = append(task.History, lease.Event{Seq: seq})
		}
		return &engine.News{ID: task.ID, Task: task, Later: later}
	}
	progress := version(0, 2, 3, 6)
	progress.Feed = &engine.Feed{}
	for _, commit := range [][]*engine.News{
		{version(2, 1, 4), version(0, 2, 3)},
		{version(6, 1, 4, 7), version(0, 2, 3, 6)},
		{version(0, 1, 4, 7, 8, 9)},
		// the progress of a task comes before its event
		{version(10, 1, 4, 7, 8, 9, 11), progress, version(0, 2, 3, 6, 10)},
		{progress},
	} {
		for _, n := range commit {
			if err := w.tell(n); err != nil {
				t.Fatal(err)
			}
		}
		if len(w.toldOf) > 0 { // or a watch would hold all tasks of a long run
			t.Errorf("after a commit %d tasks are noted, want none", len(w.toldOf))
		}
	}
	if w.caughtUp > 0 {
		t.Error("after news that is newer than what catchUp has sent, progress still reads the store")
	}
	want := "1 resume 1, 4 resume 1, 2 resume 2, 3 resume 3, 7 resume 5, 6 resume 6, 8 resume 8, 9 resume 9, 11 resume 9, 10 resume 10"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("sent %s\nwant %s", s, want)
	}
}

// S5: a watch of a task sends a note that earlier events of its history are no longer kept.
func TestWatchSaysThatEventsAreMissing(t *testing.T) {
	t.Attr("rules", "S5")
	var sent []*lessorv1.WatchTaskResponse
	task := &lease.Task{
		ID: lease.TaskID{Space: 1, Seq: 5}, Spec: &lease.Spec{}, Dropped: 3,
		History: []lease.Event{{Seq: 20, Type: lease.EventGranted}},
	}
	w := &taskWatcher{id: task.ID, eventSender: &eventSender{send: func(m *lessorv1.WatchTaskResponse) error { sent = append(sent, m); return nil }}}
	if err := w.version(task); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 2 || sent[0].GetMissed().GetDurable() != 4 || sent[1].GetHistory().GetType() != lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED {
		t.Fatalf("sent %v, want that 4 are missing, and GRANTED", sent)
	}
	if sent[0].GetSequence() != 19 || sent[1].GetSequence() != 20 {
		t.Errorf("the sequences are %d and %d, want 19 and 20", sent[0].GetSequence(), sent[1].GetSequence())
	}
}

// S5: each event of a watch names its task. An event without a sequence number of its own has that
// of the last durable event and its place after it, and those of an attempt have the state of the
// task, and the number of the attempt.
func TestEventsOfAWatchNameTheirTask(t *testing.T) {
	t.Attr("rules", "S5")
	task := &lease.Task{
		ID: lease.TaskID{Space: 1, Seq: 5}, Spec: &lease.Spec{}, Dropped: 3, Rest: lease.Ready,
		History: []lease.Event{{Seq: 20, Type: lease.EventGranted, State: lease.Leased}}, Lease: &lease.Lease{StartedAt: 1},
	}
	news := []*engine.News{
		{ID: task.ID, Task: task},
		{ID: task.ID, Task: task, Feed: &engine.Feed{Stage: "two", Chunks: []lease.Chunk{{Text: "a"}}, Lost: 3}, Sum: &lease.Feedback{Stage: "two", Attempt: 7}},
		{ID: task.ID},
	}
	id := task.ID.String()
	want := []*lessorv1.WatchTaskResponse{
		{TaskId: id, Sequence: 19, Event: &lessorv1.WatchTaskResponse_Missed{Missed: &lessorv1.Missed{Durable: 4}}},
		{
			TaskId: id, Sequence: 20, TaskState: lessorv1.TaskState_TASK_STATE_LEASED,
			Event: &lessorv1.WatchTaskResponse_History{History: convert.EventProto(&task.History[0])},
		},
		{TaskId: id, Sequence: 20, SubSequence: 1, Event: &lessorv1.WatchTaskResponse_Missed{Missed: &lessorv1.Missed{Volatile: 3}}},
		{
			TaskId: id, Sequence: 20, SubSequence: 2, TaskState: lessorv1.TaskState_TASK_STATE_RUNNING,
			Event: &lessorv1.WatchTaskResponse_Progress{Progress: convert.ProgressProto(news[1].Sum)},
		},
		{
			TaskId: id, Sequence: 20, SubSequence: 3, TaskState: lessorv1.TaskState_TASK_STATE_RUNNING, Attempt: 7,
			Event: &lessorv1.WatchTaskResponse_Chunk{Chunk: convert.ChunksProto(news[1].Feed.Chunks)[0]},
		},
		{TaskId: id, Sequence: 20, SubSequence: 4, Event: &lessorv1.WatchTaskResponse_Deleted{Deleted: &lessorv1.Deleted{}}},
	}
	for name, newWatcher := range map[string]func(*eventSender) watcher{
		"task": func(to *eventSender) watcher { return &taskWatcher{eventSender: to, id: task.ID} },
		"run":  func(to *eventSender) watcher { return &runWatcher{eventSender: to, toldOf: map[lease.TaskID]uint64{}} },
	} {
		var got []*lessorv1.WatchTaskResponse
		w := newWatcher(&eventSender{send: func(m *lessorv1.WatchTaskResponse) error {
			got = append(got, m)
			return nil
		}})
		for _, n := range news {
			if err := passOn(w, n, engine.Missed{}); err != nil && !errors.Is(err, errWatchOver) {
				t.Fatal(err)
			}
		}
		for i := range max(len(got), len(want)) {
			if i >= min(len(got), len(want)) || !proto.Equal(got[i], want[i]) {
				t.Fatalf("watch of a %s: event %d of\n%v\nwant\n%v", name, i, got, want)
			}
		}
	}
}
