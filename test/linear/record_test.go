//go:build faults

package linear

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// kind is what a call asks; granted and ended are what the coordinator does by itself or for a worker.
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
	Worker  string // who called
	Task    string // idempotency key of the task, which is known before its id
	Attempt uint32 `json:",omitempty"` // of the lease in use or granted
	Token   uint64 `json:",omitempty"` // fencing token of a grant; 0: nobody was told
	Content string `json:",omitempty"` // of a report: equal content is an equal report; of ended: the cause
	Call    int64
	Return  int64 // forever: no answer came
	Answer  answer
}

// answer is what of an answer is compared.
type answer struct {
	Refused      string `json:",omitempty"` // status code other than OK
	Verdict      string `json:",omitempty"`
	Reason       string `json:",omitempty"`
	State        string `json:",omitempty"` // READY and SCHEDULED are both waiting
	Superseding  uint32 `json:",omitempty"` // current attempt told with SUPERSEDED
	Replayed     bool   `json:",omitempty"`
	ShouldCancel bool   `json:",omitempty"`
	Created      bool   `json:",omitempty"`
	Attempt      uint32 `json:",omitempty"` // of a read task
	Output       string `json:",omitempty"` // of a read task
}

// forever is when a call returned that never did.
const forever = math.MaxInt64

func (o *op) open() bool { return o.Return == forever }

func (o *op) String() string {
	end := fmt.Sprint(o.Return)
	if o.open() {
		end = "open"
	}
	return fmt.Sprintf("[%d, %s] %s %s attempt %d token %d %q: %+v", o.Call, end, o.Worker, o.Kind, o.Attempt, o.Token, o.Content, o.Answer)
}

// now reads the one clock that all processes of a machine share and that never jumps.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}
