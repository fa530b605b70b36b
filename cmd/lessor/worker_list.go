package main

import (
	"fmt"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// workerListCmd is lessor worker list.
type workerListCmd struct {
	server `embed:""`
	Queue  string `type:"nonempty" placeholder:"NAME" help:"Only workers that take from this queue."`
}

func (c workerListCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		list := newListing(a, "WORKER", "STATE", "HEALTH", "LEASES", "SLOTS", "QUEUES", "CONNECTED", "SEEN")
		req := &lessorv1.ListWorkersRequest{Queue: c.Queue}
		return printPages(list, workerCells, func(token string) ([]*lessorv1.Worker, string, error) {
			req.PageToken = token
			page, err := cl.admin.ListWorkers(a.ctx, req)
			return page.GetWorkers(), page.GetNextPageToken(), err
		})
	})
}

func workerCells(w *lessorv1.Worker) []string {
	return []string{
		w.GetWorkerId(),
		words.Name(w.GetState()),
		words.Name(w.GetHealth()),
		fmt.Sprint(w.GetLeases()),
		fmt.Sprint(w.GetCapabilities().GetConcurrency().GetMaxParallel()),
		strings.Join(w.GetQueues(), ","),
		age(w.GetConnectedAt()),
		age(w.GetLastSeenAt()),
	}
}
