package main

import (
	"github.com/alecthomas/kong"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// queueUpdateCmd is lessor queue update.
type queueUpdateCmd struct {
	remote `embed:""`
	Name   string `arg:"" help:"Queue to update; created if it does not exist."`

	Pause       bool               `typed:"" xor:"pause" help:"Stop granting tasks; leased tasks go on."`
	Resume      bool               `typed:"" xor:"pause" help:"Resume granting tasks."`
	MaxInflight *uint32            `placeholder:"N" help:"Most live leases at once; 0 is no limit."`
	Rate        *rate              `placeholder:"RATE" help:"Limit on the rate of grants, such as 5/s, 300/m, 1000/h or 50/d; a bare number is per second; 0 is no limit."`
	Burst       uint32             `type:"positive" placeholder:"N" help:"With --rate: most grants at once (as many as the rate allows in a second, at least 1)."`
	Weight      map[string]float64 `placeholder:"KEY=W" mapsep:"none" help:"Share of a fairness key in the turns, relative to the others (1); 0 forgets the key. Repeatable."`

	retryFlags `embed:""`
	ResetRetry bool `typed:"" help:"Go back to the default retry policy."`
}

// Help is shown below the flags.
func (queueUpdateCmd) Help() string {
	return `Settings without a flag stay as they are. The retry policy is for tasks that are submitted from then on and have none of their own; what it does not
set is the default, shown in parentheses.

Examples:
  lessor queue update mail --max-inflight 10 --rate 300/m
  lessor queue update mail --weight gold=3 --weight trial=0.5
  lessor queue update mail --max-inflight 0 --rate 0 --reset-retry`
}

func (c queueUpdateCmd) Run(a *app, line *kong.Context) error {
	if !c.limitsRate() {
		if err := refuseIdle(line, "only with a --rate above 0", func(flag *kong.Flag) bool { return flag.Name == "burst" }); err != nil {
			return err
		}
	}
	req, err := c.request()
	if err != nil {
		return err
	}
	return c.with(a, func(cl *client) error {
		answer, err := cl.admin.UpdateQueue(a.ctx, req)
		if err != nil {
			return err
		}
		if a.json {
			err = printJSON(a.out, answer)
		} else {
			err = printQueue(a.out, answer.GetQueue())
		}
		return unheard(err, "", "queue %q was updated", c.Name)
	})
}

func (c queueUpdateCmd) limitsRate() bool { return c.Rate != nil && *c.Rate != 0 }

func (c queueUpdateCmd) request() (*lessorv1.UpdateQueueRequest, error) {
	const hint = "see lessor queue update --help"
	setsRetry := c.retryFlags != retryFlags{}
	setsPause := c.Pause || c.Resume
	switch {
	case setsRetry && c.ResetRetry:
		return nil, fail(exitUsage, hint, "--reset-retry: cannot be used together with flags that set the retry policy")
	case !setsRetry && !c.ResetRetry && !setsPause && c.MaxInflight == nil && c.Rate == nil && len(c.Weight) == 0:
		return nil, fail(exitUsage, hint, "nothing to update: set at least one flag")
	}
	req := &lessorv1.UpdateQueueRequest{
		WorkspaceId: c.Workspace, Name: c.Name, MaxInflight: c.MaxInflight, FairnessWeights: c.Weight,
	}
	if setsPause {
		req.Paused = &c.Pause
	}
	if c.Rate != nil {
		req.RateLimit = &lessorv1.RateLimit{PerSecond: float64(*c.Rate)}
	}
	if c.limitsRate() {
		req.RateLimit.Burst = c.Burst
	}
	if req.RetryPolicy = c.policy(); c.ResetRetry {
		req.RetryPolicy = &lessorv1.RetryPolicy{}
	}
	return req, nil
}
