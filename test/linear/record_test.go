//go:build faults

package linear

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// kind is the kind of a call. granted and ended are not calls, but what the coordinator does.
type kind string

const (
	submit    kind = "submit"
	lease     kind = "lease" // the call; each assignment in its answer becomes a granted
	granted   kind = "granted"
	start     kind = "start"
	heartbeat kind = "heartbeat"
	complete  kind = "complete"
	fail      kind = "fail"
	release   kind = "release"
	cancel    kind = "cancel"
	retry     kind = "retry"
	get       kind = "get"
	ended     kind = "ended"
)

// op is one call, as a client process prints it.
type op struct {
	Kind    kind
	Worker  string // who made the call
	Task    string // the idempotency key of the task, because its id is not known before its submit is answered
	Attempt uint32 `json:",omitempty"` // of the lease in use, or granted
	Token   uint64 `json:",omitempty"` // fencing token of a grant; 0 if nobody was told
	Content string `json:",omitempty"` // of a report (equal content is an equal report); of ended: the cause
	Call    int64
	Return  int64 // forever if there was no answer
	Answer  answer
}

// answer is what the check compares of an answer.
type answer struct {
	Refused      string `json:",omitempty"` // the status code, if it is not OK
	Verdict      string `json:",omitempty"`
	Reason       string `json:",omitempty"`
	State        string `json:",omitempty"` // waiting for READY and SCHEDULED
	Superseding  uint32 `json:",omitempty"` // current_attempt of SUPERSEDED
	Replayed     bool   `json:",omitempty"`
	ShouldCancel bool   `json:",omitempty"`
	Created      bool   `json:",omitempty"`
	Attempt      uint32 `json:",omitempty"` // of a read task
	Output       string `json:",omitempty"` // of a read task
}

// forever is the Return of a call without an answer.
const forever = math.MaxInt64

func (o *op) open() bool { return o.Return == forever }

func (o *op) String() string {
	end := fmt.Sprint(o.Return)
	if o.open() {
		end = "open"
	}
	return fmt.Sprintf("[%d, %s] %s %s attempt %d token %d %q: %+v",
		o.Call, end, o.Worker, o.Kind, o.Attempt, o.Token, o.Content, o.Answer)
}

// now reads the monotonic clock, which all processes of a machine share.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}
