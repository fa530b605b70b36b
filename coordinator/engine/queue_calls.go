package engine

import (
	"context"
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// Queues lists at most limit queues of a space, in the order of their names, beginning after the
// name after. lines is how many lines it names at most, of all these queues together; each of them
// costs the loop about as much as a queue.
func (e *Engine) Queues(ctx context.Context, name Space, after string, limit, lines int) ([]QueueInfo, error) {
	return ask(ctx, e, name.Tenant, func() ([]QueueInfo, error) {
		s := e.spaces.named(name)
		if s == nil {
			return nil, nil
		}
		var queues []*queue
		s.byQueueName.Ascend(&queue{name: after}, func(q *queue) bool {
			if q.name > after && q.createdAt != 0 && len(queues) < limit {
				queues = append(queues, q)
			}
			return len(queues) < limit
		})
		return s.show(lines, queues...), nil
	})
}

// Queue returns one queue; found is false if there is no queue of that name. lines is how many of
// its lines it names at most.
func (e *Engine) Queue(
	ctx context.Context, name Space, queue string, lines int,
) (info QueueInfo, found bool, err error) {
	shown, err := ask(ctx, e, name.Tenant, func() (*QueueInfo, error) {
		s := e.spaces.named(name)
		if s == nil || s.queues[queue] == nil || s.queues[queue].createdAt == 0 {
			return nil, nil
		}
		return &s.show(lines, s.queues[queue])[0], nil
	})
	if shown == nil {
		return QueueInfo{}, false, err
	}
	return *shown, true, nil
}

// show returns what is shown of some queues of the space, with at most that many lines.
func (s *space) show(lines int, queues ...*queue) []QueueInfo {
	blockers, shown := s.oldestBlockers(), make([]QueueInfo, len(queues))
	for i, q := range queues {
		shown[i] = q.info()
		if b := blockers[q.name]; q.parked > 0 {
			shown[i].Blocker = Blocker{b.since, b.task}
		}
	}
	nameLines(lines, queues, shown)
	return shown
}

func (q *queue) info() QueueInfo {
	return QueueInfo{
		Name:      q.name,
		CreatedAt: q.createdAt,
		Settings:  *q.settings,
		Takers:    q.attending,
		Ready:     q.counts[countReady],
		Scheduled: q.counts[countScheduled],
		Leased:    q.counts[countLeased],
		Parked:    q.parked,
		Completed: q.counts[countCompleted],
		Failed:    q.counts[countFailed],
		Cancelled: q.counts[countCancelled],
	}
}

// UpdateQueue calls change with a copy of the settings of a queue, and applies the changed copy. It
// makes the queue if there is none. change may set fields of the copy, but must not write to its
// map. The error may be a *lease.FieldError; then nothing has changed.
func (e *Engine) UpdateQueue(
	ctx context.Context, name Space, queue string, change func(*lease.Settings),
) (QueueInfo, error) {
	return alter(ctx, e, name.Tenant, func() (_ QueueInfo, changed bool, err error) {
		before := &noSettings
		if s := e.spaces.named(name); s != nil && s.queues[queue] != nil {
			before = s.queues[queue].settings
		}
		settings := *before
		change(&settings)
		switch {
		case !settings.Paused:
			settings.PausedAt = 0
		case !before.Paused:
			settings.PausedAt = e.now().Wall
		}
		if err := settings.Check(e.rules.Limits); err != nil {
			return QueueInfo{}, false, err
		}
		more := settingsOf(&settings) - settingsOf(before)
		if n := e.spaces.tenant(name.Tenant); more > 0 && n != nil && n.settings+more > maxSettings {
			return QueueInfo{}, false, &lease.FieldError{
				Field: "name", Problem: fmt.Sprintf("would get settings beyond the limit of %d queues with settings, and fairness weights, of a tenant", maxSettings),
			}
		}
		s := e.spaces.obtain(name)
		if err := e.spaces.assignNumber(s); err != nil {
			e.spaces.forgetUnused(s)
			return QueueInfo{}, false, err
		}
		e.spaces.announce(s)
		s.tenant.settings += more
		return e.applySettings(s.queue(queue), &settings), true, nil
	})
}

// maxSettings is how many settings a tenant may have on all its queues, as settingsOf counts them.
// Settings are never forgotten, nor are their queues, so without a limit a tenant could use up the
// memory, at each start again.
const maxSettings = 100_000

// settingsOf returns how many settings a queue has: the queue itself and each fairness weight count
// as one.
func settingsOf(s *lease.Settings) int {
	if s == &noSettings {
		return 0
	}
	return 1 + len(s.Weights)
}

// applySettings applies settings to a queue, and marks the queue for matching, because tasks that
// the old settings blocked may be granted now.
func (e *Engine) applySettings(q *queue, settings *lease.Settings) QueueInfo {
	q.reweigh(settings)
	if rate := q.settings.Rate; rate.PerSecond == 0 { // there was no rate limit, so nothing of it is used up
		q.bucket = lease.Bucket{}
	} else {
		q.bucket = rate.At(q.bucket, e.now().Serving) // the time until now counts at the rate that was in force
	}
	q.settings = settings
	e.agenda.dropThrottle(q)
	if q.createdAt == 0 { // a queue exists from its first submit or update on (T13)
		q.createdAt = e.now().Wall
	}
	q.bucket = settings.Rate.At(q.bucket, e.now().Serving)
	e.batch().touchQueue(q)
	e.batch().touchSpace(q.space)
	e.batch().addSettings(q)
	e.agenda.add(q)
	return q.info()
}
