package httpapi

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/lease"
)

// claim is the fields with which the body of every callback begins.
type claim struct {
	Attempt     *uint32 `json:"attempt"`
	AttemptID   string  `json:"attemptId"`
	WorkerID    string  `json:"workerId"`
	Traceparent string  `json:"traceparent"`
}

// callback returns the handler of a callback. It refuses a request if the task in its path is not
// the task of the task token (H1).
func (a *api) callback(next func(w http.ResponseWriter, r *http.Request, h Holder) *problem) handler {
	return func(w http.ResponseWriter, r *http.Request) *problem {
		h, _ := r.Context().Value(holderKey{}).(Holder)
		if r.PathValue("task_id") != h.Ticket.Task.String() {
			return errOtherTask
		}
		p := next(w, r, h)
		if p != nil && p.said != 0 {
			if err := a.Rejected(r.Context(), h, p.said, p.wrong()); err != nil {
				return failed(err)
			}
		}
		return p
	}
}

// read reads the body of a callback, which is a report of the kind said, and checks that it is
// about the attempt of the task token.
func (a *api) read(w http.ResponseWriter, r *http.Request, h Holder, into any, c *claim, said lease.Kind) *problem {
	if p := a.decode(w, r, into, lenient); p != nil {
		return rejected(p, said)
	}
	switch {
	case c.Attempt == nil:
		return rejected(invalid("attempt", "is missing"), said)
	case *c.Attempt != h.Ticket.Attempt:
		return otherAttempt("attempt")
	case c.AttemptID != "" && c.AttemptID != lease.AttemptID(h.Ticket.Task, h.Ticket.Attempt):
		return otherAttempt("attemptId")
	}
	return nil
}

func otherAttempt(field string) *problem {
	p := newProblem(kindForbidden, codeForbidden, field+": the task token is for another attempt")
	p.body.Field = field
	return p
}

// report makes the call that judges a report, and answers with the verdict. accepted returns the
// body for COMMITTED.
func report[Req any, Res verdict](
	w http.ResponseWriter, r *http.Request, h Holder,
	judge func(context.Context, Req, ...grpc.CallOption) (Res, error), said Req,
	accepted func(Res) any,
) *problem {
	told, err := judge(r.Context(), said)
	if err != nil {
		return failed(err)
	}
	if p := refused(told, h.Ticket.Attempt); p != nil {
		return p
	}
	writeJSON(w, http.StatusOK, accepted(told))
	return nil
}
