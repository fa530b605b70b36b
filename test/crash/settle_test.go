//go:build faults

package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// settle repeats the submits and Lease requests that got no answer before the kill. Reports are
// repeated when their task is compared.
func (c *comparer) settle(ctx context.Context) {
	var submits []*submission
	var leases []*lessorv1.LeaseRequest
	c.b.update(func() {
		submits, leases = c.b.submits, c.b.leases
		c.b.submits, c.b.leases = nil, nil
	})
	for _, s := range submits {
		c.must(c.settleSubmit(ctx, s))
	}
	for _, req := range leases {
		c.must(c.settleLease(ctx, req))
	}
}

// settleSubmit finds out whether a submit without an answer took effect: all of a batch is there,
// or nothing (A6). If the submit has keys, it is repeated then.
func (c *comparer) settleSubmit(ctx context.Context, s *submission) error {
	found, err := c.find(ctx, s)
	if err != nil {
		return err
	}
	if len(found) != 0 && len(found) != len(s.specs) {
		return fmt.Errorf("A6: of %s, a batch of %d tasks, %d are there", s.run, len(s.specs), len(found))
	}
	c.b.countUnanswered(len(found) > 0)
	if !s.keyed {
		return c.settleFound(s, found)
	}
	made, err := s.send(ctx, c.tasks)
	if err != nil {
		return err
	}
	for i, m := range made {
		if m.GetCreated() != (len(found) == 0) || len(found) > 0 && found[i].GetTaskId() != m.GetTaskId() {
			return fmt.Errorf("T1: the repeat of %s made task %v where %v were there", s.run, m, len(found))
		}
	}
	c.b.submitted(s, made)
	return nil
}

// settleFound enters what was found of a submit that cannot be repeated.
func (c *comparer) settleFound(s *submission, found []*lessorv1.Task) error {
	if len(found) == 0 {
		c.absent = append(c.absent, s)
		return nil
	}
	made := make([]*lessorv1.SubmitResult, len(found))
	for i, t := range found {
		made[i] = &lessorv1.SubmitResult{TaskId: t.GetTaskId(), Created: true}
	}
	c.b.submitted(s, made)
	return nil
}

// find lists the tasks of a submit, in the order of its specs.
func (c *comparer) find(ctx context.Context, s *submission) (found []*lessorv1.Task, err error) {
	req := &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{RunId: s.run}, PageSize: 1000}
	for {
		m, err := c.tasks.ListTasks(ctx, req)
		if err != nil {
			return nil, err
		}
		found = append(found, m.GetTasks()...)
		if req.PageToken = m.GetNextPageToken(); req.PageToken == "" {
			return found, nil
		}
	}
}

// settleLease repeats a Lease request. If leases were granted to it, they are the answer (S2).
func (c *comparer) settleLease(ctx context.Context, req *lessorv1.LeaseRequest) error {
	req.Wait = nil
	m, err := c.workers.Lease(ctx, req)
	if err != nil {
		return err
	}
	for _, g := range m.GetAssignments() {
		c.b.granted(req, g)
	}
	return nil
}

// resubmit repeats some acknowledged submits that have keys: they make no new tasks (T1).
func (c *comparer) resubmit(ctx context.Context, sample int) {
	for range sample {
		s := c.b.anyKeyed(c.rand)
		if s == nil {
			continue
		}
		again, err := s.send(ctx, c.tasks)
		c.must(err)
		for i, m := range again {
			if m.GetCreated() || m.GetTaskId() != s.made[i].id {
				c.b.violated("T1", s.made[i], "the repeat of %s made %v", s.run, m)
			}
		}
		c.b.update(func() { c.b.counts.resubmits++ })
	}
}

// anyKeyed returns a random acknowledged submit whose tasks still have their keys; nil if the
// random choice is not one.
func (b *book) anyKeyed(r *rand.Rand) *submission {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.keyed) == 0 {
		return nil
	}
	s := b.keyed[r.IntN(len(b.keyed))]
	if slices.ContainsFunc(s.made, func(t *task) bool { return t.interfered }) {
		return nil
	}
	return s
}

// stillAbsent looks again for tasks that were not there after a kill: they must not appear later.
func (c *comparer) stillAbsent(ctx context.Context) {
	for _, s := range c.absent {
		found, err := c.find(ctx, s)
		c.must(err)
		if len(found) > 0 {
			c.b.t.Errorf("A6: %s was not there after a kill, and is now", s.run)
		}
	}
}

// countUnanswered counts a call without an answer, by whether it had taken effect.
func (b *book) countUnanswered(happened bool) {
	b.update(func() {
		if happened {
			b.counts.unsureYes++
		} else {
			b.counts.unsureNo++
		}
	})
}
