package main

import (
	"fmt"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// poolListCmd is lessor pool list.
type poolListCmd struct {
	poolClient `embed:""`
}

func (c poolListCmd) Run(a *app) error {
	return c.call(func(pools lessorv1.PoolServiceClient) error {
		answer, err := pools.ListPools(a.ctx, &lessorv1.ListPoolsRequest{})
		if err != nil {
			return err
		}
		return printPools(a, answer.GetPools())
	})
}

// poolGetCmd is lessor pool get.
type poolGetCmd struct {
	poolClient `embed:""`
	ID         string `arg:"" help:"Pool to show."`
}

func (c poolGetCmd) Run(a *app) error {
	return c.call(func(pools lessorv1.PoolServiceClient) error {
		answer, err := pools.GetPool(a.ctx, &lessorv1.GetPoolRequest{PoolId: c.ID})
		if err != nil {
			return err
		}
		return printPools(a, []*lessorv1.Pool{answer.GetPool()})
	})
}

// printPools prints a row for each worker, or a line of JSON for each pool.
func printPools(a *app, pools []*lessorv1.Pool) error {
	list := newListing(a, "POOL", "WORKER", "STATE", "SINCE", "PID", "GPU", "STARTS", "VRAM", "ENDPOINT",
		"LAST FAILURE")
	for _, p := range pools {
		if a.json {
			if err := printJSON(a.out, p); err != nil {
				return err
			}
			continue
		}
		for _, w := range p.GetWorkers() {
			list.table.row(poolWorkerCells(p, w)...)
		}
	}
	return list.flush()
}

func poolWorkerCells(p *lessorv1.Pool, w *lessorv1.PoolWorker) []string {
	state := words.Name(w.GetState())
	if next := w.GetNextStartAt(); next != nil {
		state += " until " + clock(next)
	}
	unless := func(missing bool, text string) string {
		if missing {
			return ""
		}
		return text
	}
	return []string{
		p.GetPoolId(),
		w.GetWorkerId(),
		state,
		age(w.GetStateSince()),
		unless(w.GetPid() == 0, fmt.Sprint(w.GetPid())),
		unless(w.GpuDevice == nil, fmt.Sprint(w.GetGpuDevice())),
		fmt.Sprint(w.GetStarts()),
		unless(w.GetVramUsedBytes() == 0, words.Bytes(w.GetVramUsedBytes())),
		w.GetEndpoint(),
		w.GetLastFailure(),
	}
}
