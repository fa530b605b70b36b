package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
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
		if err := (&watchPrinter{out: &out, ofRun: true}).print(event); err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(strings.TrimSuffix(out.String(), "\n"), "\t"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// output is an event with a chunk of stderr of t1.
func output(index uint64, text string) *lessorv1.WatchTaskResponse {
	return &lessorv1.WatchTaskResponse{TaskId: "t1", Event: &lessorv1.WatchTaskResponse_Chunk{Chunk: &lessorv1.FeedbackChunk{
		Channel: "stderr", Index: index, Body: &lessorv1.FeedbackChunk_Text{Text: text},
	}}}
}

// A line that is spread over chunks is printed as one. A gap, another channel or task, and any
// other event end it; nothing is held at the end.
func TestWatchedLines(t *testing.T) {
	behind := func(e *lessorv1.WatchTaskResponse) *lessorv1.WatchTaskResponse {
		e.GetChunk().Metadata = map[string]string{worker.MetadataDropped: "2048"}
		return e
	}
	other := output(2, "out\n")
	other.GetChunk().Channel = "stdout"
	ofOther := output(2, "more\n")
	ofOther.TaskId = "t2"
	data := output(2, "")
	data.GetChunk().Body = &lessorv1.FeedbackChunk_Data{Data: make([]byte, 3)}
	json := func(index uint64, text string) *lessorv1.WatchTaskResponse {
		e := output(index, text)
		e.GetChunk().MimeType = "application/json"
		return e
	}
	deleted := &lessorv1.WatchTaskResponse{TaskId: "t1", Event: &lessorv1.WatchTaskResponse_Deleted{}}
	for _, c := range []struct {
		name   string
		events []*lessorv1.WatchTaskResponse
		want   []string
	}{
		{"whole lines", []*lessorv1.WatchTaskResponse{output(1, "a\nb\n"), output(2, "c\n")}, []string{"stderr: a", "stderr: b", "stderr: c"}},
		{"a line in three", []*lessorv1.WatchTaskResponse{output(1, "a\nb"), output(2, "c"), output(3, "d\ne")}, []string{"stderr: a", "stderr: bcd", "stderr: e"}},
		{"an empty line", []*lessorv1.WatchTaskResponse{output(1, "a"), output(2, "\n\nb\n")}, []string{"stderr: a", "stderr: ", "stderr: b"}},
		{"empty lines before the beginning of one", []*lessorv1.WatchTaskResponse{output(1, "a\n\nb"), output(2, "c\n\n"), output(3, "d\n")}, []string{
			"stderr: a", "stderr: ", "stderr: bc", "stderr: ", "stderr: d",
		}},
		{"missing chunks", []*lessorv1.WatchTaskResponse{output(1, "a"), output(3, "b\n")}, []string{"stderr: a", "stderr: b"}},
		{"dropped output", []*lessorv1.WatchTaskResponse{output(8, "a"), behind(output(9, "more\n"))}, []string{"stderr: a", "dropped 2.0 KiB of stderr", "stderr: more"}},
		{"dropped output, two lines", []*lessorv1.WatchTaskResponse{output(8, "a"), behind(output(9, "b\nc"))}, []string{
			"stderr: a", "dropped 2.0 KiB of stderr", "stderr: b", "stderr: c",
		}},
		{"another channel", []*lessorv1.WatchTaskResponse{output(1, "a"), other}, []string{"stderr: a", "stdout: out"}},
		{"another task", []*lessorv1.WatchTaskResponse{output(1, "a"), ofOther}, []string{"stderr: a", "stderr: more"}},
		{"chunks that are no lines", []*lessorv1.WatchTaskResponse{output(1, "a"), json(2, "{}"), json(3, "[]"), output(4, "b\n")}, []string{
			"stderr: a", "stderr: {}", "stderr: []", "stderr: b",
		}},
		{"data", []*lessorv1.WatchTaskResponse{output(1, "a"), data}, []string{"stderr: a", "stderr: 3 B of data"}},
		{"another event", []*lessorv1.WatchTaskResponse{output(1, "a"), deleted}, []string{"stderr: a", "deleted"}},
	} {
		var out bytes.Buffer
		p := &watchPrinter{out: &out}
		for _, e := range c.events {
			if err := p.print(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.flush(); err != nil || p.late != nil {
			t.Fatalf("flush: %v, still late: %v", err, p.late != nil)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, strings.TrimSuffix(line[strings.LastIndex(line, "\t")+1:], "\n"))
		}
		if want := strings.Join(c.want, "\n"); strings.Join(got, "\n") != want {
			t.Errorf("%s: printed\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), want)
		}
	}
}

// The beginning of a line waits for its end for lineDelay, however often a bit of it comes: a
// progress bar is seen. The next line waits as long.
func TestBeginningOfALineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &watchPrinter{out: &bytes.Buffer{}}
		waited := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			if <-p.late; time.Since(began) != want {
				t.Errorf("late after %v, want %v", time.Since(began), want)
			}
			if err := p.flush(); err != nil {
				t.Fatal(err)
			}
		}
		send := func(index uint64, text string) {
			t.Helper()
			if err := p.print(output(index, text)); err != nil {
				t.Fatal(err)
			}
		}
		send(1, "10 %")
		time.Sleep(lineDelay / 2)
		send(2, " 20 %")
		waited(lineDelay / 2)
		send(3, "1")
		time.Sleep(lineDelay / 2)
		send(4, "2\n3")
		waited(lineDelay)
	})
}
