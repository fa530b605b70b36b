package engine

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// inOneBatch makes the loop take everything that do puts into the inbox as one batch: the loop
// stands still while do runs.
func (r *rig) inOneBatch(do func()) {
	r.Helper()
	block := make(chan struct{})
	go onLoop(r, func() bool { <-block; return true })
	synctest.Wait()
	do()
	close(block)
	synctest.Wait()
}

// leaseInBackground leases one task in another goroutine.
func (r *rig) leaseInBackground(worker string) <-chan []Granted {
	got := make(chan []Granted, 1)
	go func() {
		g, err := r.Lease(r.Context(), LeaseRequest{Wants: Wants{Space: home, Worker: worker, Queues: []string{"q"}}, Max: 1})
		if err != nil {
			r.Error(err)
		}
		got <- g
	}()
	synctest.Wait()
	return got
}

// feed passes one piece of news to the watchers of its task.
func (r *rig) feed(tenant string, f Feed) {
	r.FeedAll(tenant, r.ResolveFeeds(tenant, []Feed{f}), func(bool) {})
}

func feedUnder(g Granted, f Feed) Feed {
	f.TaskID, f.LeaseID = g.Task.ID.String(), g.LeaseID
	return f
}

// storedFeedback returns the feedback that the store has: that of the last attempt that ended.
func (r *rig) storedFeedback(id lease.TaskID) (f *lease.Feedback) {
	r.Helper()
	err := r.st.View(func(rd store.Reader) (err error) {
		f, err = records.Feedback(rd, id)
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return f
}

// The feedback of an attempt is stored once, as it was when the attempt ended. The next change of
// the task must not store it again, because the output may have been dropped from memory meanwhile
// to make room.
func TestFeedbackOfAnEndedAttemptIsStoredOnce(t *testing.T) {
	h := newHub()
	id := lease.TaskID{Space: 1, Seq: 1}
	leased := &lease.Task{ID: id, Lease: &lease.Lease{Attempt: 1}}
	waits, goneOn := &lease.Task{ID: id}, &lease.Task{ID: id}
	said := &Feed{Chunks: []lease.Chunk{{Text: "the last words"}}}
	ends := &batch{
		feeds:   []ResolvedFeed{{feed: said, id: id, attempt: 1}},
		changes: []*change{{id: id, Change: lease.Change{Old: leased, New: waits}}},
	}
	h.absorb(ends)
	if len(ends.feedback) != 1 || len(ends.feedback[0].feedback.Chunks) != 1 {
		t.Fatalf("the batch that ends the attempt stores the feedback %+v, want one with one chunk", ends.feedback)
	}
	flood := &batch{feeds: []ResolvedFeed{{feed: &Feed{Chunks: []lease.Chunk{{Text: strings.Repeat("x", recentOfAll)}}}, id: lease.TaskID{Space: 1, Seq: 2}, attempt: 1}}}
	h.absorb(flood)
	later := &batch{changes: []*change{{id: id, Change: lease.Change{Old: waits, New: goneOn}}}}
	h.absorb(later)
	if len(later.feedback) != 0 {
		t.Errorf("the next batch stores the feedback again: %+v, want none", later.feedback[0].feedback)
	}
}

// Feedback of an attempt is never shown as that of the next attempt, even if one commit ends the
// first attempt and begins the next. It is stored as the feedback of its own attempt.
func TestFeedbackStaysWithItsAttempt(t *testing.T) {
	for name, late := range map[string]bool{"sent before": false, "sent in the same batch": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				spec := work()
				spec.Priority = 1
				task := r.submit(spec)[0]
				g := r.lease(1, 0)[0]
				half := feedUnder(g, Feed{Fraction: new(0.5)})
				if !late {
					r.feed(home.Tenant, half)
					synctest.Wait()
					if r.LiveFeedback(task.ID) == nil {
						r.Fatal("LiveFeedback has no feedback of the live lease")
					}
				}
				var next <-chan []Granted
				r.inOneBatch(func() {
					if late {
						r.feed(home.Tenant, half)
					}
					release := &lease.Report{Kind: lease.KindRelease, TaskID: half.TaskID, LeaseID: half.LeaseID}
					if err := r.Post(home.Tenant, []*lease.Report{release}, func([]lease.Answer, error) {}); err != nil {
						r.Fatal(err)
					}
					next = r.leaseInBackground("w")
				})
				if again := <-next; len(again) != 1 || again[0].Task.ID != task.ID {
					r.Fatalf("leased %v, want the released task again", again)
				}
				if f := r.LiveFeedback(task.ID); f != nil {
					r.Errorf("the feedback of attempt 2 is %+v, want none", f)
				}
				if f := r.storedFeedback(task.ID); f == nil || f.Attempt != 1 || f.Fraction != 0.5 {
					r.Errorf("the stored feedback is %+v, want that of attempt 1 with the fraction 0.5", f)
				}
			})
		})
	}
}

// W11: of the output of a live attempt the newest chunks are kept, up to bounds in bytes and in
// number.
func TestNewestOutputIsKept(t *testing.T) {
	t.Attr("rules", "W11")
	chunk := func(channel string, bytes int) lease.Chunk {
		return lease.Chunk{Channel: channel, Text: strings.Repeat("x", bytes)}
	}
	for name, tt := range map[string]struct {
		said []lease.Chunk
		want string // channels of the chunks that are kept
	}{
		"nothing":       {nil, ""},
		"what fits":     {[]lease.Chunk{chunk("a", 1), chunk("b", recentBytes-1)}, "ab"},
		"one too many":  {[]lease.Chunk{chunk("a", 1), chunk("b", recentBytes)}, "b"},
		"one too large": {[]lease.Chunk{chunk("a", 1), chunk("b", 2*recentBytes)}, "b"},
		"metadata counts": {[]lease.Chunk{
			chunk("a", recentBytes/2), {Channel: "b", Metadata: map[string]string{"k": strings.Repeat("x", recentBytes/2)}},
		}, "b"},
		"many small": {[]lease.Chunk{chunk("a", 0), chunk("b", 0), chunk("c", 0)}, "abc"},
	} {
		for _, pieces := range []int{1, 2} { // all at once, or in two parts
			sum := &lease.Feedback{}
			for said := tt.said; len(said) > 0; {
				n := (len(said) + pieces - 1) / pieces
				sum = join(sum, &Feed{Chunks: said[:n]})
				said = said[n:]
			}
			got := ""
			for _, c := range sum.Chunks {
				got += c.Channel
			}
			if got != tt.want {
				t.Errorf("%s in %d pieces: the chunks of channels %q are kept, want %q", name, pieces, got, tt.want)
			}
		}
	}
	sum := &lease.Feedback{}
	for range 3 * recentChunks {
		sum = join(sum, &Feed{Chunks: []lease.Chunk{chunk("a", 1)}})
	}
	if len(sum.Chunks) != recentChunks {
		t.Errorf("%d small chunks are kept, want %d", len(sum.Chunks), recentChunks)
	}
}

// The engine calls back when it has handled feedback of a stream, also if it dropped the feedback
// because of an overload.
func TestFeedbackCallsBackWhenItWasHandled(t *testing.T) {
	run(t, func(r *rig) {
		r.submit(work())
		g := r.lease(1, 0)[0]
		done := make(chan bool, 3)
		handled := func(taken bool) { done <- taken }
		say := func(all ...Feed) { r.FeedAll(home.Tenant, r.ResolveFeeds(home.Tenant, all), handled) }
		say(feedUnder(g, Feed{Stage: "x"}), Feed{TaskID: "nonsense"})
		say()
		synctest.Wait()
		r.overload(time.Second)
		say(feedUnder(g, Feed{Stage: "y"}))
		taken := 0
		for range cap(done) {
			if <-done {
				taken++
			}
		}
		if taken != 2 {
			r.Errorf("%d of 3 calls were taken, want the 2 before the overload", taken)
		}
		if f := r.LiveFeedback(g.Task.ID); f.Stage != "x" {
			r.Errorf("the live feedback is %+v, want stage x", f)
		}
	})
}

// What a heartbeat tells comes with its renewal: it does not wait for a turn of its own, and a
// flood of other calls does not crowd it out. A heartbeat that is refused tells nothing.
func TestNewsOfAHeartbeatComeWithItsRenewal(t *testing.T) {
	run(t, func(r *rig) {
		r.submit(work())
		g := r.lease(1, 0)[0]
		for stage, wrong := range []*lease.FieldError{nil, {Field: "checkpoint", Problem: "is too large"}} {
			r.overload(time.Second)
			beat := &lease.Report{Kind: lease.KindHeartbeat, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID, Invalid: wrong}
			a, err := r.Judge(r.Context(), home.Tenant, []*lease.Report{beat}, feedUnder(g, Feed{Stage: fmt.Sprint(stage)}))
			if err != nil || (a[0].Verdict == lease.VerdictCommitted) != (wrong == nil) {
				r.Fatalf("the heartbeat got %v (%v)", a, err)
			}
		}
		if f := r.LiveFeedback(g.Task.ID); f == nil || f.Stage != "0" {
			r.Errorf("the live feedback is %+v, want that of the heartbeat that was not refused", f)
		}
	})
}

// S5: each item of news of a run says which events of its batch come with a later one. A watcher
// must not resume after them. The changes of a batch are not in the order of their events: the
// first change of a task may have made no event, and the last words of an attempt come with an
// earlier version.
func TestNewsSayWhichEventsComeLater(t *testing.T) {
	t.Attr("rules", "S5")
	version := func(id uint64, run string, events ...uint64) *lease.Task {
		task := &lease.Task{ID: lease.TaskID{Space: 1, Seq: id}, Spec: &lease.Spec{RunID: run}}
		for _, seq := range events {
			task.History = append(task.History, lease.Event{Seq: seq})
		}
		return task
	}
	changed := func(was, is *lease.Task) *change {
		c := &change{Change: lease.Change{Old: was, New: is}}
		c.id, _ = c.Subject()
		return c
	}
	h, of := newHub(), Watching{Run: "run"}
	watch := h.topic(of).subscribe(h, of)
	h.publish(&batch{
		changes: []*change{
			changed(version(1, "run"), version(1, "run", 20, 29)),
			changed(version(2, "run", 12), version(2, "run", 12)),
			changed(version(3, "run"), version(3, "run", 23)),
			changed(version(4, "run"), nil),
			changed(nil, version(22, "run", 24)),
			changed(version(5, "other"), version(5, "other", 21)),
			changed(version(6, "run", 13), version(6, "run", 13, 28)),
		},
		feeds: []ResolvedFeed{{feed: &Feed{}, id: lease.TaskID{Space: 1, Seq: 1}, task: version(1, "run", 20)}},
	})
	var got []string
	for n, _ := watch.poll(t); n != nil; n, _ = watch.poll(t) {
		got = append(got, fmt.Sprintf("%d: %d", n.ID.Seq, n.Later))
	}
	want := "1: 22, 1: 22, 2: 22, 3: 22, 4: 22, 22: 28, 6: 0"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("the tasks of the news, and the first event that comes later:\n%s\nwant\n%s", s, want)
	}
}

// poll returns the next news if it has come, and how many the subscription has missed before it.
func (s *Subscription) poll(t testing.TB) (*News, Missed) {
	t.Helper()
	n, missed, _, err := s.read()
	if err != nil {
		t.Errorf("a watch of %+v has ended: %v", s.of, err)
	}
	return n, missed
}

// S5, X5: what slow watchers have not read is bounded, in bytes too. They miss the rest, and are
// told how much, but each gets the last item. What all have read is not kept, and one item may be
// larger than the bound.
func TestNewsOfSlowWatchersAreBounded(t *testing.T) {
	t.Attr("rules", "S5 X5")
	h, of := newHub(), Watching{Run: "run"}
	topic := h.topic(of)
	quick, slow := topic.subscribe(h, of), topic.subscribe(h, of)
	number := uint64(0)
	send := func(n News) {
		number++
		n.ID.Seq = number
		topic.add(n)
		if read, missed := quick.poll(t); read.ID.Seq != number || missed != (Missed{}) {
			t.Fatalf("a quick reader got news %d and missed %+v, want %d and nothing", read.ID.Seq, missed, number)
		}
	}
	output := func(bytes int) News {
		return News{Task: &lease.Task{Spec: &lease.Spec{}}, Feed: &Feed{Chunks: []lease.Chunk{{Data: make([]byte, bytes)}}}}
	}
	want := func(seq uint64, all, gone, kept int) {
		t.Helper()
		if n, missed := slow.poll(t); n.ID.Seq != seq || missed != (Missed{all, gone}) || len(topic.news) != kept {
			t.Fatalf("a slow reader got news %d and missed %+v, and %d are kept; want %d, %+v and %d",
				n.ID.Seq, missed, len(topic.news), seq, Missed{all, gone}, kept)
		}
	}
	send(output(newsBytes / 2))
	want(1, 0, 0, 0)
	send(News{})
	for range 3 { // the last two fit together
		send(output(newsBytes / 3))
	}
	want(5, 3, 1, 0)
	send(output(1))
	send(output(2 * newsBytes))
	want(7, 1, 0, 0)
	small := News{}
	most := newsBytes / small.size()
	for range 3 * most {
		send(small)
	}
	want(uint64(7+5*most/2+1), 5*most/2, 5*most/2, most/2-1)
	for range most/2 - 1 {
		slow.poll(t)
	}
	if n, _ := slow.poll(t); n != nil || len(topic.news) != 0 || topic.bytes != 0 {
		t.Errorf("after the last news there is %+v, and %d items of %d bytes are kept", n, len(topic.news), topic.bytes)
	}
	send(output(1))
	slow.Close()
	if len(topic.news) != 0 || h.runs[runKey{run: "run"}] != topic {
		t.Errorf("when the only watcher that has not read it is gone, %d items are kept; the topic is there: %v",
			len(topic.news), h.runs)
	}
	if quick.Close(); len(h.runs) != 0 {
		t.Errorf("without watchers, %d topics are kept", len(h.runs))
	}
}

// S5: several watchers read at their own pace while news comes: each item that a watcher gets comes
// after what it had and what it has missed. In the end all have the last one, and none is kept.
func TestWatchersReadAtTheirOwnPace(t *testing.T) {
	t.Attr("rules", "S5")
	const count = 20_000
	h, of := newHub(), Watching{Run: "run"}
	topic := h.topic(of)
	var readers sync.WaitGroup
	for pace := range 6 {
		watch := topic.subscribe(h, of)
		readers.Go(func() {
			for had := 0; had < count; {
				n, missed, err := watch.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if had += missed.All + 1; n.ID.Seq != uint64(had) {
					t.Errorf("got news %d after %d others", n.ID.Seq, had-1)
					return
				}
				for range 20 * pace {
					runtime.Gosched()
				}
			}
		})
	}
	for i := range uint64(count) {
		topic.add(News{ID: lease.TaskID{Seq: i + 1}})
		if i%16 == 15 {
			topic.wake()
			runtime.Gosched()
		}
	}
	topic.wake()
	readers.Wait()
	if len(topic.news) != 0 {
		t.Errorf("%d items are kept that all have read", len(topic.news))
	}
}

// S5: a watcher that waits is woken by news, by the end of its context, and by that of the engine;
// it gets the news that is left.
func TestWatcherIsWoken(t *testing.T) {
	t.Attr("rules", "S5")
	run(t, func(r *rig) {
		watch := r.Watch(Watching{Task: r.submit(work())[0].ID})
		defer watch.Close()
		for _, tt := range []struct {
			wake func(stop context.CancelFunc)
			want string
		}{
			{func(context.CancelFunc) { r.lease(1, 0) }, "true <nil>"},
			{func(stop context.CancelFunc) { stop() }, "false context canceled"},
			{func(context.CancelFunc) { r.shutDown() }, "false " + ErrStopped.Error()},
		} {
			ctx, stop := context.WithCancel(r.Context())
			woken := make(chan string, 1)
			go func() {
				n, _, err := watch.Next(ctx)
				woken <- fmt.Sprint(n != nil, " ", err)
			}()
			synctest.Wait()
			if len(woken) != 0 {
				t.Errorf("a watcher was woken by nothing: %s", <-woken)
			}
			tt.wake(stop)
			if got := <-woken; got != tt.want {
				t.Errorf("a watcher was woken with %s, want %s", got, tt.want)
			}
			stop()
		}
		r.start(Config{})
	})
}

// S5: the news of several attempts that share a batch all reach their watchers.
func TestNewsOfSeveralAttemptsInABatch(t *testing.T) {
	t.Attr("rules", "S5")
	run(t, func(r *rig) {
		tasks := r.submit(many(3)...)
		granted := r.lease(3, 0)
		var watches []*Subscription
		for _, task := range tasks {
			watch := r.Watch(Watching{Task: task.ID})
			defer watch.Close()
			watches = append(watches, watch)
		}
		var feeds []Feed
		for i, g := range granted {
			feeds = append(feeds, feedUnder(g, Feed{Message: fmt.Sprint(i)}))
		}
		r.FeedAll(home.Tenant, r.ResolveFeeds(home.Tenant, feeds), func(bool) {})
		synctest.Wait()
		for i, watch := range watches {
			n, _ := watch.poll(t)
			if more, _ := watch.poll(t); n == nil || more != nil {
				r.Fatalf("the watcher of task %d has the news %v and %v, want one", i, n, more)
			}
			if n.ID != tasks[i].ID || n.Feed == nil || n.Feed.Message != fmt.Sprint(i) || n.Sum.Message != n.Feed.Message {
				r.Errorf("the watcher of task %d got %+v, want the message %d", i, n, i)
			}
		}
	})
}
