package main

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// taskAdoptCmd is lessor task adopt.
type taskAdoptCmd struct {
	server  `embed:""`
	TaskID  string `arg:"" help:"Task whose result came too late."`
	Attempt uint32 `typed:"" type:"positive" placeholder:"N" help:"Attempt that reported it; by default the newest whose result is kept."`
}

// Help is shown below the flags.
func (taskAdoptCmd) Help() string {
	return `A result that was reported after its lease had ended is kept, and changes nothing. Adopted, it becomes the output of the
task, which is COMPLETED then. No worker may hold the task, and it must not have an outcome yet.

Examples:
  lessor task get t0000200000000001 --discarded 1 | less
  lessor task adopt t0000200000000001 --attempt 1`
}

func (c taskAdoptCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		answer, err := cl.tasks.AdoptResult(a.ctx, &lessorv1.AdoptResultRequest{TaskId: c.TaskID, Attempt: c.Attempt})
		if err != nil {
			return withID(c.TaskID, err)
		}
		return printChange(a, answer, stateLine(answer.GetTask()))
	})
}
