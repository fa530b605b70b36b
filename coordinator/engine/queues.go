package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/lessor-dev/lessor/lease"
)

// Queues lists queues; see Calls.
func (e *Engine) Queues(ctx context.Context, name Space, after string, limit int) ([]QueueInfo, error) {
	var all []QueueInfo
	err := e.do(ctx, name.Tenant, func() {
		number, ok := e.dir.lookup(name)
		if !ok {
			return
		}
		for _, q := range e.spaces[number].queues {
			if q.name > after && q.createdAt != 0 {
				all = append(all, q.info())
			}
		}
	})
	slices.SortFunc(all, func(a, b QueueInfo) int { return strings.Compare(a.Name, b.Name) })
	return all[:min(limit, len(all))], err
}

// Queue shows one queue; see Calls.
func (e *Engine) Queue(ctx context.Context, name Space, queue string) (info QueueInfo, found bool, err error) {
	err = e.do(ctx, name.Tenant, func() {
		number, ok := e.dir.lookup(name)
		if !ok {
			return
		}
		if q := e.spaces[number].queues[queue]; q != nil && q.createdAt != 0 {
			info, found = q.info(), true
		}
	})
	return info, found, err
}

func (q *queue) info() QueueInfo {
	return QueueInfo{
		Name: q.name, CreatedAt: q.createdAt, Settings: *q.settings, Takers: q.attending,
		Ready: q.counts[countReady], Scheduled: q.counts[countScheduled], Leased: q.counts[countLeased], Parked: q.parked,
	}
}

// UpdateQueue sets what governs a queue; see Calls.
func (e *Engine) UpdateQueue(ctx context.Context, name Space, queue string, change func(*lease.Settings)) (info QueueInfo, err error) {
	var refusal error
	err = e.do(ctx, name.Tenant, func() {
		s := e.spaceOf(name)
		settings := lease.Settings{}
		if q := s.queues[queue]; q != nil {
			settings = *q.settings
		}
		change(&settings)
		if refusal = settings.Check(e.rules.Limits); refusal != nil {
			return
		}
		if refusal = e.number(s); refusal != nil {
			return
		}
		info = e.govern(e.queue(s, queue), &settings)
	})
	if err == nil {
		err = refusal
	}
	return info, err
}

// govern puts settings in force. Whatever they held back is looked at again.
func (e *Engine) govern(q *queue, settings *lease.Settings) QueueInfo {
	q.settings = settings
	if q.createdAt == 0 { // a queue exists from its first submit or update on (T13)
		q.createdAt = e.now.Wall
	}
	q.bucket = settings.Rate.At(q.bucket, e.now.Serving)
	e.batch.queues[q] = struct{}{}
	e.batch.spaces[q.space] = struct{}{}
	e.batch.set = append(e.batch.set, q)
	e.stir(q)
	return q.info()
}
