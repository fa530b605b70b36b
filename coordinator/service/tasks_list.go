package service

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// maxScan is how many items of a list one call reads at most. If the call has not filled its page
// by then, it returns a shorter page and a token for the next one.
var maxScan = 10_000

// ListTasks lists the tasks of a workspace that a filter selects, in the order of their submit or
// the reverse one.
func (s *taskService) ListTasks(
	ctx context.Context, req *lessorv1.ListTasksRequest,
) (*lessorv1.ListTasksResponse, error) {
	f := s.fields()
	want := convert.ParseFilter(f, req.GetFilter())
	size := f.Items("page_size", req.GetPageSize(), defaultPage)
	tenant := gate.Identify(ctx).Tenant
	kind := "tasks"
	if req.GetNewestFirst() {
		kind = "tasks, newest first"
	}
	list := newListing(kind, tenant, want.Sent)
	from := seqCursor(list.cursor(f, req.GetPageToken()))
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	p := taskPage{want: &want, newestFirst: req.GetNewestFirst(), pageSize: pageSize{most: size}, now: s.Engine.Now()}
	if err := s.fill(ctx, &p, engine.Space{Tenant: tenant, Workspace: want.Workspace}, from); err != nil {
		return nil, refusal.Status(err)
	}
	res := &lessorv1.ListTasksResponse{Tasks: p.tasks}
	if p.more {
		res.NextPageToken = list.token(binary.BigEndian.AppendUint64(nil, p.last))
	}
	return res, nil
}

// fill fills a page with the tasks of a space that come behind the one with a sequence number; 0 is
// before all. What has an idempotency key is one task, so there is no page after its page.
func (s *taskService) fill(ctx context.Context, p *taskPage, space engine.Space, from uint64) error {
	number, ok := s.Engine.SpaceNumber(space)
	if !ok {
		return nil
	}
	var only *lease.Task
	if key := p.want.IdempotencyKey; key != "" {
		var err error
		if only, err = s.Engine.TaskByKey(ctx, space.Tenant, number, key); err != nil || only == nil {
			return err
		}
	}
	return s.longView(func(r store.Reader) error {
		p.r = r
		if only != nil {
			p.take(only)
			return p.err
		}
		return errors.Join(p.scan(number, from), p.err)
	})
}

// seqCursor returns the sequence number in a cursor, which is of the last task before the page; 0
// without one.
func seqCursor(cursor []byte) uint64 {
	if len(cursor) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(cursor)
}

// taskPage collects a page from a scan.
type taskPage struct {
	r    store.Reader
	err  error // the error that ended the scan early
	want *convert.Filter
	now  lease.Now

	newestFirst bool

	pageSize
	tasks   []*lessorv1.Task
	scanned int
	last    uint64 // sequence number of the last task that was scanned
	more    bool   // the scan stopped before the end
}

// scan reads the tasks of a space that the filter may select, from behind a sequence number on. It
// may set p.err.
func (p *taskPage) scan(space uint32, from uint64) error {
	held := p.want.OnlyHeld() // they are few, however many tasks there are
	switch {
	case held && p.newestFirst:
		return records.LeasedTasksBackOf(p.r, space, from, p.take)
	case held:
		return records.LeasedTasksOf(p.r, space, from, p.take)
	case p.newestFirst:
		return records.TasksBack(p.r, space, p.want.Run, from, p.take)
	}
	return records.Tasks(p.r, space, p.want.Run, from, p.take)
}

// take scans a task and returns whether the scan goes on. If it returns false, it has not scanned
// the task: the next page begins with this task.
func (p *taskPage) take(t *lease.Task) bool {
	if p.full() || p.scanned >= maxScan {
		p.more = true
		return false
	}
	p.scanned++
	p.last = t.ID.Seq
	if p.want.Matches(t) {
		m := convert.TaskProto(p.now, t)
		if p.err = addError(m, p.r, t); p.err != nil {
			return false
		}
		p.tasks = append(p.tasks, m)
		p.add(m)
	}
	return true
}
