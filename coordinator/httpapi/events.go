package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/strictjson"
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

// missed says how many events the client does not get, because the client was too slow or because
// the events are no longer kept.
type missed struct {
	Durable  uint64 `json:"durable,omitempty"`
	Volatile uint64 `json:"volatile,omitempty"`
}

// deltaEvent is the data of a node.result.delta.
type deltaEvent struct {
	TaskID   string            `json:"taskId"`
	State    string            `json:"state"`
	Attempt  uint32            `json:"attempt"`
	Channel  string            `json:"channel"`
	Index    uint64            `json:"index"`
	MIMEType string            `json:"mimeType,omitempty"`
	Text     string            `json:"text,omitempty"`
	Data     []byte            `json:"dataBase64,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// events answers GET /v1/tasks/{task_id}/events with the past events of the task and then with new
// ones, until the task is final. A durable event has an id. A request with this id as its
// Last-Event-ID resumes after the event (S5).
func (a *api) events(w http.ResponseWriter, r *http.Request) *problem {
	after, p := lastEventID(r)
	if p != nil {
		return p
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	watch, err := a.tasks.WatchTask(ctx,
		&lessorv1.WatchTaskRequest{TaskId: r.PathValue("task_id"), AfterSequence: after})
	if err != nil {
		return failed(err)
	}
	to := newEventStream(w)
	if r.Method == http.MethodHead { // the answer to GET as far as its head, so that the status is the same
		to.begun = leave
	}
	return follow(ctx, to, watch)
}

// follow sends events until there are no more. Before the first event it can still answer with an
// error, or with 204 if the task is final and the client already has all events.
func follow(
	ctx context.Context, to *eventStream, watch grpc.ServerStreamingClient[lessorv1.WatchTaskResponse],
) *problem {
	defer to.endSoonAfter(ctx)()
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
		return 0, invalid("Last-Event-ID", "is %q, which is not the id of an event", strictjson.Clip(sent))
	}
	return after, nil
}
