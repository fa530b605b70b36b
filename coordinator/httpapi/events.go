package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Names of server-sent events.
const (
	eventState = "node.state"        // a change of the task, or its progress
	eventDelta = "node.result.delta" // output of the running attempt
)

// stateEvent is the data of a node.state. One of Event, Progress, Missed and Deleted is set.
type stateEvent struct {
	TaskID   string        `json:"taskId"`
	State    string        `json:"state,omitempty"`
	Event    *historyEvent `json:"event,omitempty"`
	Progress *progress     `json:"progress,omitempty"`
	Missed   *missed       `json:"missed,omitempty"`
	Deleted  bool          `json:"deleted,omitempty"`
}

// missed says how many events the client does not get, because the client was too slow or because the events are no longer kept.
type missed struct {
	Durable  uint64 `json:"durable,omitempty"`
	Volatile uint64 `json:"volatile,omitempty"`
}

// deltaEvent is the data of a node.result.delta.
type deltaEvent struct {
	TaskID   string            `json:"taskId"`
	State    string            `json:"state"`
	Channel  string            `json:"channel"`
	Index    uint64            `json:"index"`
	MIMEType string            `json:"mimeType,omitempty"`
	Text     string            `json:"text,omitempty"`
	Data     []byte            `json:"dataBase64,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// events answers GET /v1/tasks/{task_id}/events with the past events of the task and then with new ones, until the task is final. A durable event has an
// id. A request with this id as its Last-Event-ID resumes after the event (S5).
func (a *api) events(w http.ResponseWriter, r *http.Request) *problem {
	after, p := lastEventID(r)
	if p != nil {
		return p
	}
	ctx, id := r.Context(), r.PathValue("task_id")
	if r.Method == http.MethodHead { // the answer is only the head, and does not wait for an event
		return a.eventsHead(ctx, w, id, after)
	}
	watch, err := a.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: id, AfterSequence: after})
	if err != nil {
		return failed(err)
	}
	return follow(ctx, newEventStream(w), watch)
}

// eventsHead answers HEAD.
func (a *api) eventsHead(ctx context.Context, w http.ResponseWriter, id string, after uint64) *problem {
	found, err := a.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id})
	if err != nil {
		return failed(err)
	}
	history, final := found.GetTask().GetHistory(), found.GetTask().GetState() >= lessorv1.TaskState_TASK_STATE_COMPLETED
	to := newEventStream(w)
	if final && len(history) > 0 && history[len(history)-1].GetSequence() <= after {
		to.nothing()
		return nil
	}
	to.begin()
	return nil
}

// follow sends events until there are no more. Before the first event it can still answer with an error, or with 204 if the task is final and the
// client already has all events.
func follow(ctx context.Context, to *eventStream, watch grpc.ServerStreamingClient[lessorv1.WatchTaskResponse]) *problem {
	defer to.endsWith(ctx)()
	err := to.tellAll(ctx, watch)
	switch {
	case to.head: // the client sees the end of the stream
	case errors.Is(err, io.EOF):
		to.nothing()
	default:
		return failed(err)
	}
	return nil
}

// lastEventID returns the id of the event after which a stream resumes; 0 is the beginning.
func lastEventID(r *http.Request) (uint64, *problem) {
	sent := r.Header.Get("Last-Event-ID")
	if sent == "" {
		return 0, nil
	}
	after, err := strconv.ParseUint(sent, 10, 64)
	if err != nil {
		return 0, invalid("Last-Event-ID", "is %.40q, which is not the id of an event", sent)
	}
	return after, nil
}
