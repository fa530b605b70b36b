package wiretest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// WatchAll returns all events of a watch, and its error. A watch that ends with status OK has no
// error.
func WatchAll(
	ctx context.Context, r *Rig, req *lessorv1.WatchTaskRequest,
) (all []*lessorv1.WatchTaskResponse, err error) {
	stream, err := r.Tasks.WatchTask(ctx, req)
	for err == nil {
		var e *lessorv1.WatchTaskResponse
		if e, err = stream.Recv(); err == nil {
			all = append(all, e)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// EventNames returns a word for each event, separated by spaces. The word of a durable event is its
// type.
func EventNames(events []*lessorv1.WatchTaskResponse) string {
	var words []string
	for _, e := range events {
		switch x := e.GetEvent().(type) {
		case *lessorv1.WatchTaskResponse_History:
			words = append(words, strings.TrimPrefix(x.History.GetType().String(), "HISTORY_EVENT_TYPE_"))
		case *lessorv1.WatchTaskResponse_Progress:
			words = append(words, "progress")
		case *lessorv1.WatchTaskResponse_Chunk:
			words = append(words, "chunk")
		case *lessorv1.WatchTaskResponse_Missed:
			words = append(words, fmt.Sprintf("missed(%d,%d)", x.Missed.GetDurable(), x.Missed.GetVolatile()))
		case *lessorv1.WatchTaskResponse_Deleted:
			words = append(words, "deleted")
		}
	}
	return strings.Join(words, " ")
}

// WatchInBackground starts a watch. stop ends the watch, if it has not ended, and returns its
// events.
func WatchInBackground(
	t *testing.T, r *Rig, req *lessorv1.WatchTaskRequest,
) (stop func() []*lessorv1.WatchTaskResponse) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []*lessorv1.WatchTaskResponse, 1)
	go func() {
		all, _ := WatchAll(ctx, r, req)
		done <- all
	}()
	synctest.Wait()
	return func() []*lessorv1.WatchTaskResponse {
		synctest.Wait()
		cancel()
		return <-done
	}
}

// WantIncreasing checks that the sequences do not fall, and that the sub-sequences of one sequence
// increase.
func WantIncreasing(t *testing.T, events []*lessorv1.WatchTaskResponse) {
	t.Helper()
	var seq, sub uint64
	for _, e := range events {
		if e.GetSequence() < seq || e.GetSequence() == seq && e.GetSubSequence() <= sub {
			t.Errorf("event %d.%d comes after %d.%d", e.GetSequence(), e.GetSubSequence(), seq, sub)
		}
		seq, sub = e.GetSequence(), e.GetSubSequence()
	}
}
