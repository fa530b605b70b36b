package engine

import (
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// inLine returns a spec of a task of a queue that waits in the line of a fairness key.
func inLine(queue, key string) *lease.Spec {
	spec := work()
	spec.Queue, spec.FairnessKey = queue, key
	return spec
}

// wantLines checks which lines of each queue are named, by their fairness keys, if that many may
// be, and that a queue that has more says so.
func (r *rig) wantLines(most int, want map[string][]string) {
	r.Helper()
	all, err := r.Queues(r.Context(), home, "", 100, most)
	if err != nil {
		r.Fatal(err)
	}
	for _, q := range all {
		var keys []string
		for _, l := range q.Lines {
			if keys = append(keys, l.Fairness); l.Queue != q.Name {
				r.Errorf("queue %s has the line %+v", q.Name, l)
			}
		}
		if !slices.Equal(keys, want[q.Name]) {
			r.Errorf("of queue %s the lines %q are named, want %q", q.Name, keys, want[q.Name])
		}
		every, _, err := r.Queue(r.Context(), home, q.Name, 100)
		if has := len(every.Lines); err != nil || q.MoreLines != (has > len(keys)) {
			r.Errorf("queue %s has %d lines (%v), of which %d are named: more lines: %v",
				q.Name, has, err, len(keys), q.MoreLines)
		}
	}
}

// The lines of a queue are named in the order in which tasks came or were granted last; after a
// start, the one first whose next task is the oldest.
func TestLinesInTheOrderOfTheirGrants(t *testing.T) {
	run(t, func(r *rig) {
		want := func(keys ...string) {
			r.Helper()
			r.wantLines(9, map[string][]string{"q": keys})
		}
		want()
		r.submit(inLine("q", "a"), inLine("q", "a"), inLine("q", "b"), inLine("q", "c"), inLine("q", "c"))
		want("a", "b", "c")
		r.lease(1, 0)
		want("b", "c", "a")
		r.lease(1, 0)
		want("c", "a")
		r.lease(1, 0)
		want("a", "c")
		r.submit(inLine("q", "b"), inLine("q", "c"))
		want("a", "c", "b")
		r.consistent()
	})
	run(t, func(r *rig) {
		keys := []string{"a", "b", "c", "d", "e", "f"}
		for _, key := range keys {
			r.submit(inLine("q", key), inLine("q", key))
		}
		r.lease(3, 0)
		r.wantLines(9, map[string][]string{"q": {"d", "e", "f", "a", "b", "c"}})
		r.restart(Config{})
		r.wantLines(9, map[string][]string{"q": keys})
		r.kill()
		r.wantLines(9, map[string][]string{"q": keys})
	})
}

// If there are more lines than may be named, each queue has its share, and those with few leave the
// rest to the others.
func TestQueuesTakeTurnsInNamingLines(t *testing.T) {
	run(t, func(r *rig) {
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			r.submit(inLine("many", key))
		}
		r.submit(inLine("one", "a"), inLine("two", "a"), inLine("two", "b"))
		for most, want := range []map[string][]string{
			{},
			{"many": {"a"}},
			{"many": {"a"}, "one": {"a"}},
			{"many": {"a"}, "one": {"a"}, "two": {"a"}},
			{"many": {"a", "b"}, "one": {"a"}, "two": {"a"}},
			{"many": {"a", "b"}, "one": {"a"}, "two": {"a", "b"}},
			{"many": {"a", "b", "c"}, "one": {"a"}, "two": {"a", "b"}},
		} {
			r.wantLines(most, want)
		}
		q, found, err := r.Queue(r.Context(), home, "many", 4)
		if err != nil || !found || len(q.Lines) != 4 {
			r.Errorf("queue many has the lines %v (%v), want the first four", q.Lines, err)
		}
	})
}
