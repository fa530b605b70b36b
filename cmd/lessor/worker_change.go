package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// workerNames are the workers that a command changes.
type workerNames struct {
	Name []string `arg:"" help:"Workers to change."`
}

// workerDrainCmd is lessor worker drain.
type workerDrainCmd struct {
	server      `embed:""`
	oneSession  `embed:""`
	workerNames `embed:""`
	Reason      string `xor:"undo-reason" placeholder:"TEXT" help:"Why; told to the worker."`
	Deadline    when   `xor:"undo-deadline" placeholder:"TIME" help:"When the worker should have ended; it is only told to the worker and not enforced. RFC 3339, or a span from now."`
	Undo        bool   `typed:"" xor:"undo-reason,undo-deadline" help:"Take back a drain: the coordinator gives work again."`
}

// Help is shown below the flags.
func (workerDrainCmd) Help() string {
	return `A worker that drains gets no new tasks and is told so; those that it runs finish, and are reported. Workers of the Go SDK, "worker run" among them,
then end by themselves. A drain applies to the worker process: it survives a reconnect, but not a restart of the coordinator.

Examples:
  lessor worker drain host-7 --reason "new kernel" --deadline 10m
  lessor worker drain host-7 --undo`
}

func (c workerDrainCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		return changeEach(a, c.Name, func(ctx context.Context, name string) (proto.Message, string, error) {
			answer, err := cl.admin.DrainWorker(ctx, &lessorv1.DrainWorkerRequest{
				WorkerId: name, SessionId: c.Session, Reason: c.Reason, Deadline: c.Deadline.timestamp(), Undo: c.Undo,
			})
			return answer, workersLine(name, stateOfAll(answer.GetWorkers()), answer), err
		})
	})
}

// workerKickCmd is lessor worker kick.
type workerKickCmd struct {
	server      `embed:""`
	oneSession  `embed:""`
	workerNames `embed:""`
	Reason      string        `placeholder:"TEXT" help:"Why; told to the worker."`
	RetryAfter  time.Duration `type:"positive" placeholder:"DURATION" help:"How long the worker is asked to stay away (5s)."`
	Requeue     bool          `typed:"" help:"Revoke all leases of its name at once, also of processes that are gone, so that other workers get the tasks."`
}

// Help is shown below the flags.
func (workerKickCmd) Help() string {
	return `The stream of the worker ends at once. Without --requeue the worker keeps its leases: it goes on with them when it reconnects, and they expire if it
does not. With --requeue they end as REVOKED and their tasks are READY for others, although the worker may still be running them. So do those of processes of
this name that are gone, such as one that died and was started again; the worker need not be connected. With --session too, only those of that session's
process end, also if it is gone.

To keep a worker from taking new tasks, drain it first.

Examples:
  lessor worker kick host-7
  lessor worker kick host-7 --requeue --reason "the machine is gone"`
}

func (c workerKickCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		return changeEach(a, c.Name, func(ctx context.Context, name string) (proto.Message, string, error) {
			answer, err := cl.admin.KickWorker(ctx, &lessorv1.KickWorkerRequest{
				WorkerId:   name,
				SessionId:  c.Session,
				Reason:     c.Reason,
				RetryAfter: span(c.RetryAfter),
				Requeue:    c.Requeue,
			})
			line := workersLine(name, "KICKED", answer)
			if c.Requeue {
				line = revokedLine(name, answer)
			}
			return answer, line, err
		})
	})
}

// revokedLine returns one line about what a kick with requeue has ended.
func revokedLine(name string, of *lessorv1.KickWorkerResponse) string {
	line := fmt.Sprintf("%s\tKICKED\t%d revoked", printable(name), of.GetRevoked())
	if n := of.GetSessions(); n != 1 {
		line += fmt.Sprintf(", %d sessions", n)
	}
	return line
}

func stateOfAll(all []*lessorv1.Worker) string {
	if len(all) == 0 {
		return ""
	}
	return words.Name(all[0].GetState())
}

// workersLine returns one line about all sessions of a worker. The answer may leave out some of
// them; an older coordinator does not count them.
func workersLine(name, state string, of interface {
	GetWorkers() []*lessorv1.Worker
	GetSessions() uint32
},
) string {
	leases, shown := uint32(0), len(of.GetWorkers())
	for _, w := range of.GetWorkers() {
		leases += w.GetLeases()
	}
	line := fmt.Sprintf("%s\t%s\t%d leased", printable(name), state, leases)
	switch n := max(int(of.GetSessions()), shown); {
	case n > shown:
		line += fmt.Sprintf(" by the first %d of %d sessions", shown, n)
	case n > 1:
		line += fmt.Sprintf(", %d sessions", n)
	}
	return line
}
