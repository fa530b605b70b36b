package witness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Sum holds what Check has counted.
type Sum struct {
	Tasks, Starts int
	// Again is the number of tasks that were granted more than once.
	Again int
	// Lost has the leases that ended without a report, by reason.
	Lost map[lessorv1.Reason]int
	// WithoutVerdict is the number of attempts that were committed without a verdict reaching their
	// worker.
	WithoutVerdict int
	// Verdicts has the verdicts by reason.
	Verdicts map[lessorv1.Reason]int
	// Stopped is the number of handlers whose contexts ended early.
	Stopped int
}

// String lists the counts.
func (s *Sum) String() string {
	return fmt.Sprintf("%d tasks, each committed once; %d starts, %d handlers stopped early; %d tasks granted again; leases lost: %s; verdicts told: %s; %d not told",
		s.Tasks, s.Starts, s.Stopped, s.Again, byReason(s.Lost), byReason(s.Verdicts), s.WithoutVerdict)
}

func byReason(counts map[lessorv1.Reason]int) string {
	var list []string
	for _, r := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %s", counts[r], strings.TrimPrefix(r.String(), "REASON_")))
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}

// leaseLife is a lease, as the coordinator's history has it.
type leaseLife struct {
	from, to  time.Time
	committed bool // it ended by a Complete
	lost      bool // it ended without a report
	why       lessorv1.Reason
}

// Check fails the test if the histories of the tasks do not fit what the workers saw. It calls fate
// for each lease that was lost, with the process in which its handler began; empty if none did.
func (w *Witness) Check(
	t testing.TB, tasks []*lessorv1.Task, fate func(a Attempt, process string, why lessorv1.Reason),
) *Sum {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := &Sum{Tasks: len(tasks), Lost: map[lessorv1.Reason]int{}, Verdicts: w.verdictCounts}
	lives := map[Attempt]*leaseLife{}
	for _, task := range tasks {
		readHistory(t, task, lives)
		if task.GetAttempt() > 1 {
			sum.Again++
		}
	}
	for a, l := range lives {
		s := w.seen[a]
		if s == nil {
			s = &attemptSeen{}
		}
		sum.add(s, l)
		s.check(t, a, l)
		if l.lost && fate != nil {
			fate(a, s.process, l.why)
		}
	}
	for a := range w.seen {
		if lives[a] == nil {
			t.Errorf("A1: attempt %v was begun, but the history has no grant of it", a)
		}
	}
	return sum
}

func (s *Sum) add(seen *attemptSeen, l *leaseLife) {
	s.Starts += len(seen.starts)
	if len(seen.stops) > 0 {
		s.Stopped++
	}
	if l.lost {
		s.Lost[l.why]++
	}
	if l.committed && len(seen.verdicts) == 0 {
		s.WithoutVerdict++
	}
}

// readHistory reads the leases of a task from its history.
func readHistory(t testing.TB, task *lessorv1.Task, lives map[Attempt]*leaseLife) {
	t.Helper()
	completions := 0
	for _, e := range task.GetHistory() {
		a := Attempt{task.GetTaskId(), e.GetAttempt()}
		switch e.GetType() {
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED:
			lives[a] = &leaseLife{from: e.GetAt().AsTime()}
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED:
			completions++
			lives[a].to, lives[a].committed = e.GetAt().AsTime(), true
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED:
			lives[a].to = e.GetAt().AsTime()
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED:
			lives[a].to, lives[a].lost, lives[a].why = e.GetAt().AsTime(), true, e.GetReason()
		}
	}
	if completions != 1 || task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || task.GetHistoryDropped() > 0 {
		t.Errorf("A5: task %s is %v, and was completed %d times: %v",
			task.GetTaskId(), task.GetState(), completions, task.GetHistory())
	}
}

// check compares what was seen of an attempt with its lease.
func (s *attemptSeen) check(t testing.TB, a Attempt, l *leaseLife) {
	t.Helper()
	if len(s.starts) > 1 {
		t.Errorf("A2: attempt %v was begun %d times", a, len(s.starts))
	}
	for _, at := range s.starts {
		if at.Before(l.from) || at.After(l.to) {
			t.Errorf("A4: attempt %v was begun at %v, and its lease lived from %v to %v", a, at, l.from, l.to)
		}
	}
	if l.committed && len(s.starts) == 0 {
		t.Errorf("attempt %v was committed, and not begun", a)
	}
	if len(s.verdicts) > 1 {
		t.Errorf("K1: attempt %v got %d verdicts: %v", a, len(s.verdicts), s.verdicts)
	}
	for _, v := range s.verdicts {
		if (v == lessorv1.Verdict_VERDICT_COMMITTED) != l.committed && len(s.starts) > 0 {
			t.Errorf("A6, A10: the worker was told %v for attempt %v, but the history says completed: %v",
				v, a, l.committed)
		}
	}
}

// Slowest returns the longest time between the first grant of a task and its completion.
func Slowest(tasks []*lessorv1.Task) (most time.Duration) {
	for _, task := range tasks {
		var first time.Time
		for _, e := range task.GetHistory() {
			switch e.GetType() {
			case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED:
				if first.IsZero() {
					first = e.GetAt().AsTime()
				}
			case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED:
				most = max(most, e.GetAt().AsTime().Sub(first))
			}
		}
	}
	return most
}
