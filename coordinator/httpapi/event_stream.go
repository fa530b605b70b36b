package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/httpserver"
)

// lastWords is how long a stream that must end still waits for a client that does not read.
const lastWords = 500 * time.Millisecond

// writeTimeout is how long a write waits for a slow client. After that a stream of events ends, and
// the client can resume (S5).
const writeTimeout = httpserver.WriteTimeout

// On a stream without events a comment is sent from time to time. So the client soon learns that
// the request has arrived, and no proxy closes the connection as idle.
const (
	firstPing = time.Second
	pingEvery = 15 * time.Second
)

// eventStream writes server-sent events. It sends the head with the first event; until then another
// answer can still be given.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   func() // called when the head is sent

	mu   sync.Mutex // guards head and writes while comments are sent
	head bool       // the head was written

	clock  sync.Mutex // guards the deadline and ending; never held during a write
	ending bool       // the write deadline is final
}

func newEventStream(w http.ResponseWriter) *eventStream {
	patient(w)
	return &eventStream{w: w, control: http.NewResponseController(w), begun: func() {}}
}

// endSoonAfter limits the wait for a slow client to lastWords after ctx is done (X3), even for a
// client that does not send the body that it has announced: the server reads the body before it
// writes the head. forget must be called at the end of the answer, because the connection is used
// again.
func (s *eventStream) endSoonAfter(ctx context.Context) (forget func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		s.waits(lastWords, true)
		_ = s.control.SetReadDeadline(time.Now().Add(lastWords))
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// waits sets how long a write waits for the client. After a call with ending, the deadline does not
// change again.
func (s *eventStream) waits(d time.Duration, ending bool) {
	s.clock.Lock()
	defer s.clock.Unlock()
	if !s.ending {
		_ = s.control.SetWriteDeadline(time.Now().Add(d)) // a writer without deadlines does not wait
	}
	s.ending = s.ending || ending
}

// nothing answers 204, which tells a browser not to reconnect, instead of a stream.
func (s *eventStream) nothing() { s.w.WriteHeader(http.StatusNoContent) }

// begin sends the head if it was not sent yet.
func (s *eventStream) begin() {
	if s.head {
		return
	}
	s.head = true
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.Header().Set("X-Accel-Buffering", "no") // some proxies would buffer the events
	s.w.WriteHeader(http.StatusOK)
	s.begun()
}

// write sends a part of the stream and flushes it.
func (s *eventStream) write(format string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	s.waits(writeTimeout, false)
	if _, err := fmt.Fprintf(s.w, format, args...); err != nil {
		return err
	}
	return s.control.Flush()
}

// ping starts to send comments. stop ends this and waits for a comment that is being sent.
func (s *eventStream) ping(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var pings sync.WaitGroup
	pings.Go(func() {
		wait := time.NewTimer(firstPing)
		defer wait.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-wait.C:
				_ = s.write(": \n\n") // tellAll gets the error with its next event
				wait.Reset(pingEvery)
			}
		}
	})
	return func() { cancel(); pings.Wait() }
}

// tellAll sends the events of a watch, and comments in between, until the watch or a write ends
// with an error. After that no more comments are sent, so that the answer can still be another one.
func (s *eventStream) tellAll(ctx context.Context, watch grpc.ServerStreamingClient[lessorv1.WatchTaskResponse]) error {
	defer s.ping(ctx)()
	for {
		m, err := watch.Recv()
		if err == nil {
			err = s.tell(m)
		}
		if err != nil {
			return err
		}
	}
}

// tell sends an event of a watch.
func (s *eventStream) tell(m *lessorv1.WatchTaskResponse) error {
	if c := m.GetChunk(); c != nil {
		return s.send(eventDelta, 0, deltaEvent{
			TaskID:   m.GetTaskId(),
			State:    stateName(m.GetTaskState()),
			Attempt:  m.GetAttempt(),
			Channel:  c.GetChannel(),
			Index:    c.GetIndex(),
			MIMEType: c.GetMimeType(),
			Text:     c.GetText(),
			Data:     c.GetData(),
			Metadata: c.GetMetadata(),
		})
	}
	e := stateEvent{
		TaskID: m.GetTaskId(), State: stateName(m.GetTaskState()),
		Progress: progressOf(m.GetProgress()), Deleted: m.GetDeleted() != nil,
	}
	if h := m.GetHistory(); h != nil {
		shown := historyEventOf(h)
		e.Event = &shown
	}
	if lost := m.GetMissed(); lost != nil {
		e.Missed = &missed{Durable: lost.GetDurable(), Volatile: lost.GetVolatile()}
	}
	if m.GetSubSequence() != 0 { // not durable: without an id, so the reader resumes after the last durable one
		return s.send(eventState, 0, e)
	}
	return s.send(eventState, m.GetSequence(), e)
}

// send writes an event; an id of 0 is left out.
func (s *eventStream) send(name string, id uint64, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return io.ErrUnexpectedEOF // a value that JSON does not have, such as NaN: no event has one
	}
	if id == 0 {
		return s.write("event: %s\ndata: %s\n\n", name, text)
	}
	return s.write("event: %s\nid: %d\ndata: %s\n\n", name, id, text)
}
