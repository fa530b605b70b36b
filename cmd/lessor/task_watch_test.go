package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// An event that is not about a state has a dash in its place, so that the columns stay.
func TestWatchedEventWithoutState(t *testing.T) {
	for want, event := range map[string]*lessorv1.WatchTaskResponse{
		"t1\t-\tmissed 2 durable and 3 volatile events": {
			TaskId: "t1", Event: &lessorv1.WatchTaskResponse_Missed{Missed: &lessorv1.Missed{Durable: 2, Volatile: 3}},
		},
		"-\t-\tmissed 0 durable and 1 volatile events": {Event: &lessorv1.WatchTaskResponse_Missed{Missed: &lessorv1.Missed{Volatile: 1}}},
		"t1\t-\tdeleted": {TaskId: "t1", Event: &lessorv1.WatchTaskResponse_Deleted{Deleted: &lessorv1.Deleted{}}},
		"t1\tREADY\tsubmitted": {
			TaskId: "t1", TaskState: lessorv1.TaskState_TASK_STATE_READY, Event: &lessorv1.WatchTaskResponse_History{History: &lessorv1.HistoryEvent{
				Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_SUBMITTED, At: timestamppb.New(time.Unix(1, 0)),
			}},
		},
	} {
		var out bytes.Buffer
		if err := (taskWatchCmd{RunID: "nightly"}).printEvent(&app{streams: streams{out: &out}}, event); err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(strings.TrimSuffix(out.String(), "\n"), "\t"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A watch that the loss of the coordinator has cut off says how to go on, if there is something to go on from.
func TestWatchThatIsCutOff(t *testing.T) {
	for _, c := range []struct {
		code int
		seen uint64
		want string
	}{
		{exitUnavailable, 7, "continue with --after 7 once the coordinator answers"},
		{exitUnavailable, 0, "wait"},
		{exitFailed, 7, "wait"},
	} {
		if got := cutOff(fail(c.code, "wait", "away"), c.seen); got.hint != c.want || got.code != c.code {
			t.Errorf("exit code %d after event %d: exit code %d and hint %q, want %q", c.code, c.seen, got.code, got.hint, c.want)
		}
	}
}
