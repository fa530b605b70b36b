package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/lessor-dev/lessor/worker/readiness"
)

// poolNotifyCmd is lessor pool notify.
type poolNotifyCmd struct {
	Ready    poolReadyCmd    `cmd:"" help:"This process is ready for work."`
	Draining poolDrainingCmd `cmd:"" help:"This process finishes what it has, and takes no more."`
	Failed   poolFailedCmd   `cmd:"" help:"This process cannot work; it is stopped and started again."`
}

// poolReadyCmd is lessor pool notify ready.
type poolReadyCmd struct {
	VRAMBytes     size   `name:"vram-bytes" type:"positive" required:"" placeholder:"SIZE" help:"Memory of the GPU that it uses, in bytes or as 24GB."`
	Endpoint      string `placeholder:"URL" help:"Where it serves requests, as http://127.0.0.1:8001; at most 1,024 bytes."`
	Slots         uint32 `placeholder:"N" help:"How many requests it serves at once."`
	Model         string `placeholder:"REF" help:"Model that it has loaded, at most 256 bytes."`
	EngineVersion string `placeholder:"TEXT" help:"Version of its software, at most 256 bytes."`
}

// Help is shown below the flags.
func (poolReadyCmd) Help() string {
	return `For a process that "lessor pool run" has started; it is told by its environment whom to notify.

Example, for a pool with ready_timeout:
  command: [sh, -c, 'load-model && lessor pool notify ready --vram-bytes 24GB && exec serve-model']`
}

func (c poolReadyCmd) Run(a *app) error {
	return notifyPool(a.ctx, func(ctx context.Context, n *readiness.Notifier) error {
		return n.Ready(ctx, readiness.Ready{
			Endpoint:      c.Endpoint,
			VRAMUsedBytes: uint64(c.VRAMBytes),
			SlotsTotal:    c.Slots,
			ModelRef:      c.Model,
			EngineVersion: c.EngineVersion,
		})
	})
}

// poolDrainingCmd is lessor pool notify draining.
type poolDrainingCmd struct{}

func (poolDrainingCmd) Run(a *app) error {
	return notifyPool(a.ctx, func(ctx context.Context, n *readiness.Notifier) error { return n.Draining(ctx) })
}

// poolFailedCmd is lessor pool notify failed.
type poolFailedCmd struct {
	Message string `arg:"" optional:"" help:"Why, for people; cut to 1,024 bytes."`
}

func (c poolFailedCmd) Run(a *app) error {
	return notifyPool(a.ctx, func(ctx context.Context, n *readiness.Notifier) error { return n.Failed(ctx, c.Message) })
}

// notifyPool notifies the supervisor that started the program which runs this command.
func notifyPool(ctx context.Context, notify func(context.Context, *readiness.Notifier) error) error {
	n, err := readiness.FromEnv()
	if errors.Is(err, readiness.ErrNoPool) {
		return fail(exitUsage, `only a process that "lessor pool run" has started can notify it`,
			"%s is not set", readiness.VarPoolURL)
	}
	if err != nil {
		return fail(exitUsage, "", "%v", err)
	}
	err = notify(ctx, n)
	refused, ok := errors.AsType[*readiness.StatusError](err)
	switch {
	case err == nil:
		return nil
	case !ok, refused.Status >= http.StatusInternalServerError:
		return fail(exitUnavailable, "", "%v", err)
	case refused.Status == http.StatusBadRequest, refused.Status == http.StatusRequestEntityTooLarge:
		return fail(exitUsage, "", "%v", err)
	default:
		return fail(exitFailed, "", "%v", err)
	}
}
