package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// lineDelay is how long the beginning of a line waits for the chunk with its end. Workers collect
// output for half as long.
const lineDelay = 200 * time.Millisecond

// watchPrinter prints the events of a watch.
type watchPrinter struct {
	out  io.Writer
	json bool
	// ofRun: the events may be of several tasks.
	ofRun bool
	// held is a chunk that is only the beginning of a line; nil if there is none.
	held *lessorv1.WatchTaskResponse
	// late is when held has waited long enough; nil if there is none.
	late <-chan time.Time
}

// print prints an event, except for the beginning of a line at the end of a chunk: the next chunk
// may have the rest.
func (p *watchPrinter) print(e *lessorv1.WatchTaskResponse) error {
	if p.json {
		return printJSON(p.out, e)
	}
	if p.held != nil && p.held.GetTaskId() == e.GetTaskId() && goesOn(p.held.GetChunk(), e.GetChunk()) {
		e = ofChunk(e, joinChunks(p.held.GetChunk(), e.GetChunk()))
	} else if err := p.flush(); err != nil {
		return err
	}
	whole, rest := cutLine(e.GetChunk())
	if rest == nil {
		p.held, p.late = nil, nil
		return p.write(e)
	}
	p.held = ofChunk(e, rest)
	if whole == nil && p.late != nil {
		return nil // still the line that has waited since then
	}
	p.late = time.After(lineDelay)
	if whole == nil {
		return nil
	}
	return p.write(ofChunk(e, whole))
}

// flush prints what was held back.
func (p *watchPrinter) flush() error {
	held := p.held
	p.held, p.late = nil, nil
	if held == nil {
		return nil
	}
	return p.write(held)
}

func (p *watchPrinter) write(e *lessorv1.WatchTaskResponse) error {
	at := e.GetHistory().GetAt()
	if at == nil {
		at = timestamppb.Now()
	}
	lead := []string{clock(at)}
	if p.ofRun {
		lead = append(lead, printable(e.GetTaskId())) // events that were missed may be of several tasks
	}
	state := "-" // for events that were missed, and for the end of a task
	if e.GetTaskState() != lessorv1.TaskState_TASK_STATE_UNSPECIFIED {
		state = words.Name(e.GetTaskState())
	}
	lead = append(lead, state)
	text := strings.TrimRight(eventText(e), "\n")
	for line := range strings.SplitSeq(text, "\n") {
		if _, err := fmt.Fprintf(p.out, "%s\t%s\n", strings.Join(lead, "\t"), printable(line)); err != nil {
			return err
		}
	}
	return nil
}

// ofChunk returns e with another chunk.
func ofChunk(e *lessorv1.WatchTaskResponse, c *lessorv1.FeedbackChunk) *lessorv1.WatchTaskResponse {
	e = proto.CloneOf(e)
	e.Event = &lessorv1.WatchTaskResponse_Chunk{Chunk: c}
	return e
}

func eventText(e *lessorv1.WatchTaskResponse) string {
	switch event := e.GetEvent().(type) {
	case *lessorv1.WatchTaskResponse_History:
		return historyText(event.History)
	case *lessorv1.WatchTaskResponse_Progress:
		return "progress " + progressText(event.Progress)
	case *lessorv1.WatchTaskResponse_Chunk:
		return chunkText(event.Chunk)
	case *lessorv1.WatchTaskResponse_Missed:
		return fmt.Sprintf("missed %d durable and %d volatile events",
			event.Missed.GetDurable(), event.Missed.GetVolatile())
	case *lessorv1.WatchTaskResponse_Deleted:
		return "deleted"
	}
	return "an event that this version does not know"
}

func historyText(e *lessorv1.HistoryEvent) string {
	text := strings.ToLower(words.Event(e))
	if e.GetAttempt() > 0 {
		text += fmt.Sprintf(" %sattempt %d", ofResult(e), e.GetAttempt())
	}
	if e.GetActor() != "" {
		text += " " + role(e) + " " + e.GetActor()
	}
	if reason := words.Why(e); reason != "" {
		text += ": " + reason
	}
	return text
}

// ofResult returns the words that stand between an adoption and its attempt.
func ofResult(e *lessorv1.HistoryEvent) string {
	if e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_ADOPTED {
		return "result of "
	}
	return ""
}

// role returns the word in front of the actor: who did it, or whose report was refused.
func role(e *lessorv1.HistoryEvent) string {
	if e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_REFUSED {
		return "from"
	}
	return "by"
}
