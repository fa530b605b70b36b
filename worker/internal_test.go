package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/internal/wire"
)

// A8: the worker counts the span in an answer from when it asked. The span in a dispatch is counted
// from its receipt, and so is too long by the time under way; the first answer replaces it, even by
// an earlier deadline. After that answers only move the deadline forward (A3). At its deadline a
// lease has ended.
func TestLeaseClock(t *testing.T) {
	t.Attr("rules", "A8")
	t0 := time.Now()
	l := grantedLease(t0.Add(10*time.Second), 90*time.Second, 90*time.Second, 0) // 10 s under way
	check := func(what string, want time.Duration) {
		t.Helper()
		if got := l.left(t0); got != want {
			t.Errorf("%s: %v left, want %v", what, got, want)
		}
	}
	check("granted", 100*time.Second)
	l.renew(t0.Add(5*time.Second), 90*time.Second)
	check("first answer", 95*time.Second)
	l.renew(t0, 90*time.Second)
	check("an older answer", 95*time.Second)
	l.renew(t0.Add(30*time.Second), 90*time.Second)
	check("a newer answer", 120*time.Second)
	if got := l.left(t0.Add(120 * time.Second)); got > 0 {
		t.Errorf("at the deadline: %v left, want none", got)
	}
}

// The span of a wait doubles with each failure from least to most, without overflow; the wait is
// drawn from the upper half of the span.
func TestBackoffWait(t *testing.T) {
	for failures := range 100 {
		span := time.Minute
		if failures < 6 {
			span = time.Second << failures
		}
		for range 20 {
			if got := backoffWait(failures, time.Second, time.Minute); got < span/2 || got > span {
				t.Fatalf("after %d failures: %v, want %v to %v", failures, got, span/2, span)
			}
		}
	}
}

// W1: the wait grows with each session that breaks. A session that lasted longer than the wait
// before it resets the wait.
func TestBackoffIsReset(t *testing.T) {
	t.Attr("rules", "W1")
	b := backoff{least: time.Second, most: time.Minute}
	for failures, lasted := range []time.Duration{0, 0, 0, 100 * time.Millisecond} {
		if got, least := b.next(lasted), time.Second<<failures/2; got < least {
			t.Errorf("after %d failures: %v, want at least %v", failures, got, least)
		}
	}
	if got := b.next(8*time.Second + 1); got > time.Second {
		t.Errorf("after a session that lasted: %v, want at most 1 s", got)
	}
}

// T8: heartbeats of leases are sent at common instants, so that they share frames: none later than
// the interval after the last one, and none earlier than that by a full step of these instants.
func TestUntilBeat(t *testing.T) {
	t.Attr("rules", "T8")
	const interval = 30 * time.Second
	instants := make(map[time.Duration]bool)
	for age := time.Duration(0); age < interval; age += 77 * time.Millisecond {
		wait := untilBeat(age, interval)
		if wait > interval || wait <= interval-interval/beatsPerInterval {
			t.Fatalf("at age %v the next heartbeat is in %v, want more than %v and at most %v",
				age, wait, interval-interval/beatsPerInterval, interval)
		}
		instants[age+wait] = true
	}
	if len(instants) > beatsPerInterval+1 {
		t.Errorf("%d instants in an interval, want at most %d", len(instants), beatsPerInterval+1)
	}
	if got := untilBeat(0, 1); got <= 0 {
		t.Errorf("with an interval of 1ns the next heartbeat is in %v, want more than 0", got)
	}
}

// W6: the last maxRecent leases are known, so that a dispatch that comes again starts nothing;
// older ones are forgotten.
func TestRecentLeases(t *testing.T) {
	t.Attr("rules", "W6")
	var r recentLeases
	for i := range 3 * maxRecent {
		if !r.add(fmt.Sprint(i)) {
			t.Fatalf("add(%d) = false, want true for a lease that never came", i)
		}
		if r.add(fmt.Sprint(i)) || r.add(fmt.Sprint(max(0, i-maxRecent+1))) {
			t.Fatalf("after lease %d: add of a recent lease = true, want false", i)
		}
	}
	if len(r.known) != maxRecent || len(r.order) != maxRecent {
		t.Errorf("%d known, %d in order, want %d", len(r.known), len(r.order), maxRecent)
	}
}

// takeUntilFull takes items up to the limits of a frame in bytes and in number, but at least one,
// and leaves the rest in order.
func TestTakeUntilFull(t *testing.T) {
	for _, test := range []struct {
		sizes  []int
		budget int
		want   int
	}{
		{[]int{1, 2, 3}, 6, 3},
		{[]int{1, 2, 3}, 5, 2},
		{[]int{9, 1}, 5, 1},
		{nil, 5, 0},
		{slices.Repeat([]int{0}, maxItems+1), 1, maxItems},
	} {
		queue := slices.Clone(test.sizes)
		var used []int
		takeUntilFull(&queue, test.budget, func(n int) int { return n }, func(n int) { used = append(used, n) })
		if len(used) != test.want || !slices.Equal(append(used, queue...), test.sizes) {
			t.Errorf("sizes %.20v with budget %d: used %d items %.20v and left %.20v, want %d used",
				test.sizes, test.budget, len(used), used, queue, test.want)
		}
	}
}

// W11: output that waits is bounded. What is over the limit is dropped, oldest first, in whole
// chunks: the indexes show the gap, no rune is cut in two, and close returns how many bytes were
// dropped.
func TestFeedbackBound(t *testing.T) {
	t.Attr("rules", "W11")
	f := &feedback{limit: 4 * maxChunk, owner: nobody{}}
	text := strings.Repeat("xé", 10*maxChunk)
	f.write("out", []byte(text))
	if got := f.pendingSize(); got > 4*maxChunk+itemOverhead || got <= 2*maxChunk {
		t.Errorf("%d bytes wait, want more than %d and at most %d", got, 2*maxChunk, 4*maxChunk+itemOverhead)
	}
	item := f.take(false)[0]
	var kept strings.Builder
	last := item.GetChunks()[0].GetIndex()
	if last == 0 {
		t.Error("the first chunk was kept, want the oldest dropped")
	}
	for i, c := range item.GetChunks() {
		if c.GetIndex() != last+uint64(i) || !utf8.ValidString(c.GetText()) || c.GetText() == "" {
			t.Errorf("chunk %d has index %d and text %.20q, want index %d and valid UTF-8",
				i, c.GetIndex(), c.GetText(), last+uint64(i))
		}
		kept.WriteString(c.GetText())
	}
	if !strings.HasSuffix(text, kept.String()) {
		t.Error("what was kept is not the end of what was written")
	}
	if f.take(false) != nil {
		t.Error("the second take returned items, want none")
	}
	if dropped := f.close(); dropped != len(text)-kept.Len() {
		t.Errorf("%d dropped, want %d", dropped, len(text)-kept.Len())
	}
}

// W11: a write of any length, and a chunk that is too large, takes no more memory than may wait:
// what is dropped anyhow is not copied first.
func TestFeedbackCopiesLittle(t *testing.T) {
	t.Attr("rules", "W11")
	const most = 8 << 20
	long := bytes.Repeat([]byte("a line of output\n"), 64<<20/17)
	for name, add := range map[string]func(*feedback){
		"write": func(f *feedback) { f.write("out", long) },
		"chunk": func(f *feedback) { f.addChunk(Chunk{Channel: "out", Data: long}.clipped()) },
	} {
		f := &feedback{limit: largestChunk, owner: nobody{}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		add(f)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > most {
			t.Errorf("%s: %d bytes were allocated for %d, want at most %d", name, got, len(long), most)
		}
		kept := 0
		for _, item := range f.take(true) {
			for _, c := range item.GetChunks() {
				kept += len(c.GetText())
			}
		}
		if dropped := f.close(); kept+dropped != len(long) || kept > largestChunk {
			t.Errorf("%s: %d bytes kept and %d dropped, want %d together", name, kept, dropped, len(long))
		}
	}
}

// What was dropped does not stay in memory behind what waits.
func TestFeedbackForgetsDropped(t *testing.T) {
	f := &feedback{limit: largestChunk, owner: nobody{}}
	defer f.close()
	f.write("out", bytes.Repeat([]byte("x"), 3*maxChunk))
	array := f.mu.chunks
	f.limit = 2 * maxChunk
	f.write("err", []byte("x"))
	if kept := len(f.mu.chunks); kept > 2 || array[0].data != nil {
		t.Errorf("%d chunks wait, and %d bytes of the first are still there, want at most 2, and none", kept, len(array[0].data))
	}
}

// The caller may change what it has written, and the data of its chunks.
func TestFeedbackIsACopy(t *testing.T) {
	f := &feedback{limit: largestChunk, owner: nobody{}}
	defer f.close()
	text := []byte(strings.Repeat("x", 2*maxChunk+9))
	want := string(text) + "y"
	f.write("out", text)
	clear(text)
	data := []byte("y")
	f.addChunk(Chunk{Channel: "out", Data: data}.clipped())
	clear(data)
	var got strings.Builder
	for _, item := range f.take(false) {
		for _, c := range item.GetChunks() {
			got.WriteString(c.GetText())
		}
	}
	if got.String() != want {
		t.Errorf("%d bytes sent, want the %d that were written", got.Len(), len(want))
	}
}

// The limit counts an overhead for each chunk, so that many tiny chunks are bounded as well. They
// are spread over items of at most maxChunks chunks, the most that the coordinator takes, and only
// the first item has the progress.
func TestFeedbackTinyChunks(t *testing.T) {
	f := &feedback{limit: 8 * maxChunk, owner: nobody{}}
	f.changeProgress(func(p *lessorv1.Progress) { p.Fraction = 0.5 })
	for i := range 10_000 {
		f.write([]string{"out", "err"}[i%2], []byte("x"))
	}
	chunks := 0
	for i, item := range f.take(false) {
		if n := len(item.GetChunks()); n > maxChunks || (i == 0) != (item.GetProgress() == 0.5) {
			t.Errorf("item %d has %d chunks and progress %v, want at most %d chunks, and progress 0.5 only in item 0",
				i, n, item.GetProgress(), maxChunks)
		}
		chunks += len(item.GetChunks())
	}
	if want := 8 * maxChunk / (chunkOverhead + len("out") + 1); chunks != want {
		t.Errorf("%d chunks kept, want %d", chunks, want)
	}
	f.close()
}

// pendingSize is an upper bound for what is sent, so that frames stay within their limit, and the
// buffer within its own: also if names and metadata take more than the data.
func TestPendingSizeIsABound(t *testing.T) {
	long := strings.Repeat("n", maxID)
	tiny := make(map[string]string)
	for i := range maxChunkMetadata {
		tiny[fmt.Sprint(i)] = ""
	}
	for name, c := range map[string]Chunk{
		"names": {Channel: long, MIMEType: long}, "binary": {Channel: "c", Data: []byte{0xff}}, "text": {Channel: "c", Data: []byte("x")},
		"tiny metadata": {Channel: "c", Metadata: tiny}, "long metadata": {Channel: "c", Metadata: map[string]string{long: long}},
	} {
		f := &feedback{limit: 1 << 20, owner: nobody{}}
		for range 3 * maxChunks {
			f.addChunk(c.clipped())
		}
		most, n := f.pendingSize(), 0
		for _, item := range f.take(true) {
			n += proto.Size(item)
		}
		if n > most {
			t.Errorf("%s: %d bytes are sent, want at most %d", name, n, most)
		}
		if f.close(); most > 1<<20+10*itemOverhead {
			t.Errorf("%s: %d bytes wait, want at most the limit of %d", name, most, 1<<20)
		}
	}
}

// However much feedback waits, also of one attempt, no frame has more of it than the coordinator
// takes. All of it is sent, in order; that of attempts that end comes before their reports.
func TestFeedbackFrames(t *testing.T) {
	for name, test := range map[string]struct {
		chunks []int // of each attempt
		frames int
	}{
		"one frame":         {slices.Repeat([]int{1}, maxItems), 1},
		"too many items":    {append([]int{maxChunks + 1}, slices.Repeat([]int{1}, maxItems-1)...), 2},
		"too many chunks":   {slices.Repeat([]int{maxChunks}, maxItems/2), 2},
		"of one attempt":    {[]int{maxEntries}, 2},
		"nothing was added": {[]int{0}, 0},
	} {
		for _, ends := range []bool{false, true} {
			s := &session{w: newWorker(t), sent: make(map[string]*sentFrame)}
			s.w.mu.maxMessage = 1 << 30
			for i, n := range test.chunks {
				a := &attempt{w: s.w, leaseID: fmt.Sprint(i), phase: reporting}
				a.feedback.limit, a.feedback.owner = s.w.mu.maxMessage/4, nobody{}
				defer a.feedback.close()
				for j := range n {
					a.feedback.write(twoChannels[j%2], []byte("x"))
				}
				s.w.mu.outbox.feedback = append(s.w.mu.outbox.feedback, a)
				if ends {
					s.w.mu.outbox.reports = append(s.w.mu.outbox.reports, a.fail(&lessorv1.TaskError{}))
				}
			}
			s.w.lock()
			frames := s.feedbackLocked
			if ends {
				frames = func() []*lessorv1.SessionRequest {
					frames := s.reportsLocked(time.Now())
					if reports := frames[len(frames)-1].GetReports().GetReports(); len(reports) != len(test.chunks) {
						t.Errorf("%s: the last frame has %d reports, want %d", name, len(reports), len(test.chunks))
					}
					return frames[:len(frames)-1]
				}
			}
			checkFeedbackFrames(t, fmt.Sprintf("%s, ends %v", name, ends), frames(), test.chunks, test.frames)
			s.w.unlock()
		}
	}
}

// twoChannels are written in turn, so that each write makes a chunk.
var twoChannels = [2]string{"out", "err"}

// checkFeedbackFrames checks that n frames have the chunks of the attempts, within the limits.
func checkFeedbackFrames(t *testing.T, what string, frames []*lessorv1.SessionRequest, chunks []int, n int) {
	t.Helper()
	if len(frames) != n {
		t.Errorf("%s: %d frames, want %d", what, len(frames), n)
	}
	got := make([]int, len(chunks))
	for _, f := range frames {
		items := f.GetFeedback().GetItems()
		entries := len(items)
		for _, item := range items {
			entries += len(item.GetChunks())
			of, _ := strconv.Atoi(item.GetLeaseId())
			for _, c := range item.GetChunks() {
				channel, index := twoChannels[got[of]%2], uint64(got[of]/2)
				if c.GetChannel() != channel || c.GetIndex() != index {
					t.Fatalf("%s: got chunk %d of %s, want chunk %d of %s", what, c.GetIndex(), c.GetChannel(), index, channel)
				}
				got[of]++
			}
		}
		if len(items) > maxItems || entries > maxEntries {
			t.Errorf("%s: a frame has %d items and %d chunks, want at most %d items and %d entries",
				what, len(items), entries-len(items), maxItems, maxEntries)
		}
	}
	if !slices.Equal(got, chunks) {
		t.Errorf("%s: got %d chunks, want %d", what, got, chunks)
	}
}

// Writes to one channel are joined until another channel is written; each channel has its own
// indexes.
func TestFeedbackChannels(t *testing.T) {
	f := &feedback{limit: 4 * maxChunk, owner: nobody{}}
	for _, w := range []string{"a", "a", "b", "a"} {
		f.write(w, []byte(w))
	}
	var got []string
	for _, c := range f.take(false)[0].GetChunks() {
		got = append(got, fmt.Sprintf("%s%d:%s", c.GetChannel(), c.GetIndex(), c.GetText()))
	}
	if want := []string{"a0:aa", "b0:b", "a1:a"}; !slices.Equal(got, want) {
		t.Errorf("chunks = %v, want %v", got, want)
	}
	f.close()
}

// Lines are not spread over two chunks unless they are longer than one, whether they are written
// alone or many at once.
func TestFeedbackLines(t *testing.T) {
	var lines []string
	for i := range 3000 {
		lines = append(lines, fmt.Sprintf("line %d%s\n", i, strings.Repeat("é", i%50)))
	}
	all := strings.Join(lines, "")
	for name, writes := range map[string][]string{"alone": lines, "many": {all}, "pieces": {all[:20_001], all[20_001:50_001], all[50_001:]}} {
		f := &feedback{limit: len(all) + 100*chunkOverhead, owner: nobody{}}
		for _, w := range writes {
			f.write("out", []byte(w))
		}
		var got strings.Builder
		chunks := 0
		for _, item := range f.take(false) {
			for _, c := range item.GetChunks() {
				if text := c.GetText(); !strings.HasSuffix(text, "\n") || len(text) > maxChunk {
					t.Errorf("%s: chunk %d has %d bytes and ends with %q, want a whole line within %d",
						name, c.GetIndex(), len(text), text[max(0, len(text)-9):], maxChunk)
				}
				got.WriteString(c.GetText())
				chunks++
			}
		}
		if want := len(all)/maxChunk + 3; got.String() != all || chunks > want {
			t.Errorf("%s: %d chunks with %d bytes, want at most %d chunks with all %d bytes",
				name, chunks, got.Len(), want, len(all))
		}
		f.close()
	}
}

// A rune that is written in two pieces is sent in one, also if output is sent in between. At the
// end of the attempt its beginning is sent alone.
func TestFeedbackRunes(t *testing.T) {
	f := &feedback{limit: 1 << 20, owner: nobody{}}
	defer f.close()
	var sent []string
	for _, piece := range []string{"caf\xc3", "\xa9", "\xf0", "\x9f\x98", "\x80\n\xe2\x82", "\xac", "\xff", "\xe2\x82"} {
		f.write("out", []byte(piece))
		for _, item := range f.take(false) {
			for _, c := range item.GetChunks() {
				sent = append(sent, fmt.Sprintf("%d %s%x", c.GetIndex(), c.GetText(), c.GetData()))
			}
		}
	}
	if want := []string{"0 caf", "1 é", "2 😀\n", "3 €", "4 ff"}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
	if items := f.take(true); len(items) != 1 || len(items[0].GetChunks()) != 1 || string(items[0].GetChunks()[0].GetData()) != "\xe2\x82" {
		t.Errorf("at the end of the attempt %v was sent, want the beginning of a rune", items)
	}
}

// clip cuts a text at the boundary of a rune, and replaces what is not UTF-8.
func TestClip(t *testing.T) {
	for _, test := range []struct {
		in    string
		limit int
		want  string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"é", 1, ""}, {"\xff", 9, "\uFFFD"}, {"", 0, ""}, {"日本", 5, "日"},
	} {
		if got := clip(test.in, test.limit); got != test.want {
			t.Errorf("clip(%q, %d) = %q, want %q", test.in, test.limit, got, test.want)
		}
	}
}

// clipFront keeps the end of a text; what it keeps begins at the boundary of a rune.
func TestClipFront(t *testing.T) {
	for _, test := range []struct {
		in    string
		limit int
		want  string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "bcd"}, {"éa", 2, "a"}, {"é", 1, ""}, {"\xffa", 1, "a"}, {"", 0, ""},
	} {
		if got := clipFront(test.in, test.limit); got != test.want {
			t.Errorf("clipFront(%q, %d) = %q, want %q", test.in, test.limit, got, test.want)
		}
	}
}

// What is left of a long text does not keep all of it in memory for as long as it waits to be sent.
func TestClippedTextIsACopy(t *testing.T) {
	const long = 16 << 20
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for name, cut := range map[string]func(string) string{
		"clip":      func(s string) string { return clip(s, maxText) },
		"clipID":    clipID,
		"clipFront": func(s string) string { return clipFront(s, maxText) },
	} {
		before := heap()
		kept := cut(strings.Repeat("x", long))
		if more := heap() - before; more > long/2 {
			t.Errorf("%s: %d bytes stay in memory, want not much more than the %d that are kept", name, more, len(kept))
		}
		runtime.KeepAlive(kept)
	}
}

// X1: without TLS, Dial connects only to a target on this machine.
func TestIsLocal(t *testing.T) {
	for target, want := range map[string]bool{
		"127.0.0.1:7420": true, "[::1]:7420": true, "localhost:7420": true, "localhost": true, "unix:///run/l": true,
		"dns:///localhost:7420": true, "passthrough:///127.0.0.1:1": true, "dns:localhost:1": true, ":7420": true, "dns:///:7420": true,
		"10.0.0.1:7420": false, "example.com:7420": false, "dns:///example.com": false, "localhost.example.com:1": false, "": false, "other:///": false,
		"dns://127.0.0.1/example.com:1": false,
	} {
		if got := isLocal(target); got != want {
			t.Errorf("isLocal(%q) = %v, want %v", target, got, want)
		}
	}
}

// noConn is a connection that is never used.
var noConn = struct{ grpc.ClientConnInterface }{}

// Dial refuses what is no address, instead of a connection to port 443 that fails later, and says
// what an address looks like.
func TestDialNeedsAnAddress(t *testing.T) {
	for _, target := range []string{"", "127.0.0.1", "localhost", "example.com", "[::1]", "http://127.0.0.1:7420", "https://example.com", "http:7420", "127.0.0.1:", "127.0.0.1:port", "localhost:7420/"} {
		if _, err := Dial(target); err == nil || !strings.Contains(err.Error(), "HOST:PORT") {
			t.Errorf("Dial(%q) = %v, want an error that says what an address looks like", target, err)
		}
	}
	for _, target := range []string{
		"127.0.0.1:7420", "[::1]:7420", ":7420", "example.com:http", "dns:///example.com", "dns:example.com:7420", "unix:/run/l", "unix:///run/l",
		"passthrough:///anything", "own:///anything",
	} {
		if conn, err := Dial(target); err != nil && strings.Contains(err.Error(), "HOST:PORT") {
			t.Errorf("Dial(%q) = %v", target, err)
		} else if err == nil {
			_ = conn.Close()
		}
	}
}

// New accepts the zero Config. It refuses a bad one with an error that names the field, and it
// refuses bad queues, and a connection that is nil.
func TestConfig(t *testing.T) {
	queues := []string{"q"}
	if _, err := New(noConn, queues, Config{}); err != nil {
		t.Errorf("zero Config: %v", err)
	}
	for field, cfg := range map[string]Config{
		"Name":            {Name: strings.Repeat("n", maxID+1)},
		"Tenant":          {Tenant: "\xff"},
		"Workspace":       {Workspace: strings.Repeat("w", maxID+1)},
		"PoolID":          {PoolID: strings.Repeat("p", maxID+1)},
		"Concurrency":     {Concurrency: -1},
		"DrainTimeout":    {DrainTimeout: -1},
		"StopTimeout":     {StopTimeout: -1},
		"MinBackoff":      {MinBackoff: -1},
		"MaxBackoff":      {MinBackoff: 2, MaxBackoff: 1},
		"ReportTries":     {ReportTries: -1},
		"OutputBuffer":    {OutputBuffer: 1},
		"MaxMessageBytes": {MaxMessageBytes: 1},
		"Disk":            {Disk: filepath.Join(t.TempDir(), "nowhere")},
	} {
		if _, err := New(noConn, queues, cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("bad %s: New = %v, want an error that names the field", field, err)
		}
	}
	for _, bad := range [][]string{nil, {""}, slices.Repeat(queues, maxQueues+1)} {
		if _, err := New(noConn, bad, Config{}); err == nil {
			t.Errorf("New accepts the queues %.3q, want an error", bad)
		}
	}
	for _, none := range []grpc.ClientConnInterface{nil, (*grpc.ClientConn)(nil)} {
		if _, err := New(none, queues, Config{}); err == nil {
			t.Errorf("New accepts the connection %#v, want an error", none)
		}
	}
}

// A nil handler, a second handler of a type and a second default are mistakes in the program:
// Handle and HandleDefault panic.
func TestHandlePanics(t *testing.T) {
	h := func() *Worker {
		w := newWorker(t)
		w.Handle("a", nothing)
		w.HandleDefault(nothing)
		return w
	}
	for name, call := range map[string]func(){
		"nil":            func() { h().Handle("b", nil) },
		"nil of JSON":    func() { JSON[int, int](nil) },
		"nil default":    func() { newWorker(t).HandleDefault(nil) },
		"twice":          func() { h().Handle("a", nothing) },
		"second default": func() { h().HandleDefault(nothing) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic, want one", name)
				}
			}()
			call()
		}()
	}
}

func newWorker(t *testing.T) *Worker {
	t.Helper()
	w, err := New(noConn, []string{"q"}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func nothing(context.Context, *Task) ([]byte, error) { return nil, nil }

// Permanent, RetryAfter and WithCategory of a nil error are nil, so that `return nil,
// Permanent(f())` works. Otherwise they wrap the error.
func TestMarkedNilErrorIsNil(t *testing.T) {
	if Permanent(nil) != nil || RetryAfter(1, nil) != nil || WithCategory(Timeout, nil) != nil || WithPartialProgress([]byte("x"), nil) != nil {
		t.Error("Permanent, RetryAfter, WithCategory or WithPartialProgress of nil is an error, want nil")
	}
	if !errors.Is(Permanent(ErrStuck), ErrStuck) {
		t.Error("errors.Is does not find what Permanent wraps")
	}
}

// A Fail with more than 64 KiB of partial progress would be refused as a whole (V1). So it is left
// out.
func TestPartialProgressOverTheLimit(t *testing.T) {
	a := &attempt{w: newWorker(t), ctx: t.Context()}
	for size, want := range map[int]int{maxText: maxText, maxText + 1: 0} {
		r := a.failureOf(WithPartialProgress(make([]byte, size), ErrStuck))
		if got := len(r.item.GetFail().GetPartialProgress()); got != want {
			t.Errorf("of %d bytes of partial progress, %d are reported, want %d", size, got, want)
		}
	}
}

// S7: the largest outcome that is sent leaves room for the rest of its frame; a larger one is
// replaced by a failure that names the limit.
func TestOutcomeThatJustFits(t *testing.T) {
	t.Attr("rules", "S7")
	w := newWorker(t)
	a := &attempt{w: w}
	most := w.cfg.MaxMessageBytes - frameOverhead
	r := a.complete(make([]byte, most), nil)
	r.item.GetComplete().Output = make([]byte, 2*most-wire.Size(r.item))
	if got := w.replaceIfTooLargeLocked(r); got != r {
		t.Errorf("an outcome of %d bytes was replaced by %v", wire.Size(r.item), got.item)
	}
	r.item.GetComplete().Output = make([]byte, len(r.item.GetComplete().GetOutput())+1)
	if got := w.replaceIfTooLargeLocked(r).item.GetFail().GetError(); got.GetCategory() != Configuration || !strings.Contains(got.GetMessage(), fmt.Sprint(most)) {
		t.Errorf("an outcome of %d bytes is reported as %v, want a failure that names the limit of %d",
			wire.Size(r.item), got, most)
	}
}

// W7: a request for a missing frame is sent again only as an empty frame once the missing one has
// come, since the coordinator still needs its seq.
func TestRequestForAFrameThatHasCome(t *testing.T) {
	t.Attr("rules", "W7")
	l := link{next: 1, lastSeq: 4, gap: gap{open: true, unreported: true}}
	now := time.Now()
	ask, err := l.gapRequest(now)
	if err != nil || ask.GetError().GetExpectedSeq() != 5 {
		t.Fatalf("request = %v, %v, want one for seq 5", ask, err)
	}
	l.track(ask, now)
	for _, seq := range []uint64{4, 5} {
		l.lastSeq = seq
		l.resendRequested(ask.GetSeq())
		frames, err := l.resends(now)
		if err != nil || len(frames) != 1 || (frames[0].GetPayload() != nil) != (seq == 4) {
			t.Errorf("after the frame with seq %d, these are sent again: %v, error %v", seq, frames, err)
		}
	}
}

// The errors of the package name their reason and their details.
func TestErrorTexts(t *testing.T) {
	for want, err := range map[string]error{
		"lease lost: SUPERSEDED: attempt 2":                &StopError{Err: ErrLeaseLost, Reason: lessorv1.Reason_REASON_SUPERSEDED, Detail: "attempt 2"},
		"worker is draining: bye":                          &StopError{Err: ErrDraining, Detail: "bye"},
		"rejected: INVALID_REQUEST":                        &RejectedError{Reason: lessorv1.Reason_REASON_INVALID_REQUEST},
		"session refused: E.SESSION.DENIED: no (ask them)": &RefusedError{"E.SESSION.DENIED", "no", "ask them"},
		"panic: x": &PanicError{Value: "x"},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

// nobody is the owner of a feedback that the test takes itself.
type nobody struct{}

func (nobody) queueFeedback() {}

// Output that was sent does not count towards the limit any more.
func TestFeedbackIsEmptyAfterTake(t *testing.T) {
	f := &feedback{limit: 4 * maxChunk, owner: nobody{}}
	for range 3 {
		f.write("out", make([]byte, 3*maxChunk))
		f.take(false)
	}
	if dropped := f.close(); dropped > 0 {
		t.Errorf("%d bytes dropped, want none", dropped)
	}
}

// A worker with a default handler registers no types, which stands for all types, even if some
// types have handlers of their own.
func TestTypesWithADefaultHandler(t *testing.T) {
	w := newWorker(t)
	w.Handle("b", nothing)
	w.Handle("a", nothing)
	if got, want := w.types(), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("types = %q, want %q", got, want)
	}
	w.HandleDefault(nothing)
	if got := w.types(); len(got) > 0 {
		t.Errorf("types = %q, want none", got)
	}
}

// W5: while tasks wait for a goroutine, the acknowledgement of their dispatch waits, too, so that
// it comes with their outcomes; but not for so long that the coordinator would send the dispatch
// again.
func TestAcknowledgementWaitsForTheTasksOfItsDispatch(t *testing.T) {
	t.Attr("rules", "W5")
	w := newWorker(t)
	w.drained = t.Context()
	s := &session{w: w, sent: map[string]*sentFrame{}}
	w.lock()
	s.declaredCapacity = w.capacityLocked()
	w.unlock()
	now := time.Now()
	ackOf := func(at time.Time) string {
		w.lock()
		w.queueReportLocked(&report{
			a:    &attempt{w: w},
			item: &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{}}},
		})
		w.unlock()
		out, err := s.collect(at, nil)
		if err != nil || len(out.frames) != 1 {
			t.Fatalf("collect: %v, error %v, want one frame", out.frames, err)
		}
		return out.frames[0].GetAck().GetFor()
	}
	dispatch := &lessorv1.SessionResponse{Id: "d", Seq: 1, Ack: &lessorv1.Ack{Request: true}}
	for _, test := range []struct {
		after time.Duration
		ready int
		want  string
	}{
		{0, 1, ""},
		{ackMost - 1, 1, ""},
		{ackMost, 1, "d"},
		{0, 0, "d"},
	} {
		s.link = link{next: 1}
		s.link.classify(dispatch, now)
		w.mu.ready = make([]*attempt, test.ready)
		if got := ackOf(now.Add(test.after)); got != test.want {
			t.Errorf("with %d tasks that wait, a frame %v after the dispatch acknowledges %q, want %q",
				test.ready, test.after, got, test.want)
		}
		if wakes := !w.mu.outbox.lullEnds.IsZero(); wakes != (test.want == "") {
			t.Errorf("with %d tasks that wait, %v after the dispatch: the writer wakes again for the acknowledgement: %t", test.ready, test.after, wakes)
		}
		w.mu.outbox.lullEnds = time.Time{}
	}
}

// Reports do not hold up the output of handlers that still run: a worker that always has some of
// them sends both. But the Start of an attempt comes before its output.
func TestFeedbackBesideReports(t *testing.T) {
	w := newWorker(t)
	w.drained = t.Context()
	s := &session{w: w, sent: map[string]*sentFrame{}, link: link{next: 1}}
	long := &attempt{w: w, phase: executing, begun: time.Now()}
	long.feedback.limit, long.feedback.owner = 1<<10, nobody{}
	collect := func(reports ...*report) (kinds []string) {
		t.Helper()
		w.lock()
		s.declaredCapacity = w.capacityLocked()
		for _, r := range reports {
			w.queueReportLocked(r)
		}
		w.mu.outbox.feedback = []*attempt{long}
		w.unlock()
		long.feedback.write("stdout", []byte("line"))
		out, err := s.collect(time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range out.frames {
			kinds = append(kinds, fmt.Sprintf("%T", f.GetPayload())[len("*lessorv1.SessionRequest_"):])
		}
		return kinds
	}
	outcome := func() *report { return (&attempt{w: w, phase: reporting}).complete(nil, nil) }
	if got, want := collect(outcome()), []string{"Reports", "Feedback"}; !slices.Equal(got, want) {
		t.Errorf("with an outcome of another attempt, the frames are %v, want %v", got, want)
	}
	full := outcome()
	full.size = s.budget()
	if got, want := collect(full, long.start()), []string{"Reports"}; !slices.Equal(got, want) {
		t.Errorf("with a Start that is left for the next frame, the frames are %v, want %v", got, want)
	}
	if got, want := collect(), []string{"Reports", "Feedback"}; !slices.Equal(got, want) {
		t.Errorf("after that, the frames are %v, want %v", got, want)
	}
}

// K5: reports that are not sent any more hold up none behind them, however many they are, and
// whichever needs a frame of its own.
func TestObsoleteReportsHoldUpNoReport(t *testing.T) {
	t.Attr("rules", "K5")
	for _, test := range []struct {
		name                     string
		obsolete                 int
		suspects, outcomeSuspect bool
	}{
		{"that would have had a frame of its own", 1, true, false},
		{"before one that has a frame of its own", 1, false, true},
		{"more than a frame has room for", maxItems, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorker(t)
			w.drained = t.Context()
			s := &session{w: w, sent: map[string]*sentFrame{}, link: link{next: 1}}
			outcome := (&attempt{w: w, phase: reporting}).complete(nil, nil)
			outcome.suspect = test.outcomeSuspect
			w.lock()
			s.declaredCapacity = w.capacityLocked()
			for range test.obsolete {
				ended := (&attempt{w: w, phase: over}).start()
				ended.suspect = test.suspects
				w.queueReportLocked(ended)
			}
			w.queueReportLocked(outcome)
			w.unlock()
			if out, err := s.collect(time.Now(), nil); err != nil || len(out.frames) != 1 {
				t.Errorf("collect: %v, error %v, want a frame with the outcome", out.frames, err)
			}
		})
	}
}

// K5: a report that may be the reason why a frame was refused has a frame of its own, whatever
// waits before and behind it.
func TestSuspectHasAFrameOfItsOwn(t *testing.T) {
	t.Attr("rules", "K5")
	w := newWorker(t)
	w.drained = t.Context()
	s := &session{w: w, sent: map[string]*sentFrame{}, link: link{next: 1}}
	w.lock()
	s.declaredCapacity = w.capacityLocked()
	w.unlock()
	for _, suspect := range []bool{false, true, true, false} {
		r := (&attempt{w: w, phase: reporting}).complete(nil, nil)
		r.suspect = suspect
		w.lock()
		w.queueReportLocked(r)
		w.unlock()
	}
	for i := range 4 {
		out, err := s.collect(time.Now(), nil)
		if err != nil || len(out.frames) != 1 || len(out.frames[0].GetReports().GetReports()) != 1 {
			t.Errorf("collect %d: %v, error %v, want a frame with one report", i, out.frames, err)
		}
	}
}

// K5: of the frames without an answer, only the oldest one with reports may be the one at which the
// coordinator failed: it handles them in order. If something in between failed, none is. If the
// coordinator has ended the stream because the worker read nothing, none is either. A suspect stays
// one.
func TestOnlyTheOldestReportsAreSuspects(t *testing.T) {
	t.Attr("rules", "K5")
	ended := func(code codes.Code, domain string) error {
		st, err := status.New(code, "no").WithDetails(&errdetails.ErrorInfo{Domain: domain})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	for _, test := range []struct {
		err  error
		want string
	}{
		{ended(codes.Internal, detail.Domain), "[true false false true]"},
		{ended(codes.Internal, "proxy"), "[false false false true]"},
		{ended(codes.ResourceExhausted, detail.Domain), "[false false false true]"},
	} {
		w := newWorker(t)
		s := &session{w: w, sent: map[string]*sentFrame{"beat": {id: "beat", seq: 1}}}
		w.mu.resume.token = "resumes" // so that the frames are kept
		var reports []*report
		for i := range 4 {
			r := (&attempt{w: w, phase: reporting}).complete(nil, nil)
			r.suspect = i == 3
			reports = append(reports, r)
			s.sent[fmt.Sprint(i)] = &sentFrame{id: fmt.Sprint(i), seq: uint64(i + 2), reports: []*report{r}}
		}
		w.lock()
		s.suspendLocked(test.err)
		w.unlock()
		var got []bool
		for _, r := range reports {
			got = append(got, r.suspect)
		}
		if fmt.Sprint(got) != test.want {
			t.Errorf("after %v: suspects %v, want %s", test.err, got, test.want)
		}
	}
}

// V19: a Start that waits in the outbox when the outcome of its attempt comes, for example because
// the stream was slow, is not sent any more.
func TestWaitingStartGivesWayToItsOutcome(t *testing.T) {
	t.Attr("rules", "V19")
	w := newWorker(t)
	w.drained = t.Context()
	s := &session{w: w, sent: map[string]*sentFrame{}, link: link{next: 1}}
	a := &attempt{w: w, phase: executing, begun: time.Now()}
	outcome := a.complete(nil, nil)
	w.lock()
	s.declaredCapacity = w.capacityLocked()
	w.queueReportLocked(a.start())
	a.phase = reporting
	w.queueReportLocked(outcome)
	w.unlock()
	out, err := s.collect(time.Now(), nil)
	if err != nil || len(out.frames) != 1 {
		t.Fatalf("collect: %v, error %v, want one frame", out.frames, err)
	}
	if got := out.frames[0].GetReports().GetReports(); len(got) != 1 || got[0].GetComplete().GetStartedAt() == nil {
		t.Errorf("the frame has the reports %v, want the complete alone", got)
	}
}

// K6, T7, W10: a handler does not begin if its task was cancelled, or the time of a drain is over,
// before a goroutine has taken it. That is common for a cancel: it comes right behind its dispatch
// if both were held up.
func TestTaskThatIsStoppedBeforeItBegins(t *testing.T) {
	t.Attr("rules", "K6 T7 W10")
	for name, test := range map[string]struct {
		stop func(*Worker, *attempt)
		want func(*lessorv1.Report) bool
	}{
		"cancelled": {
			func(w *Worker, a *attempt) { w.cancelLocked(a, "", time.Now().Add(time.Hour)) },
			func(r *lessorv1.Report) bool { return r.GetFail().GetError().GetCategory() == Cancelled },
		},
		"drained": {
			func(w *Worker, a *attempt) { w.stopLocked(a, &StopError{Err: ErrDraining}) },
			func(r *lessorv1.Report) bool { return r.GetRelease() != nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t)
			w.baseCtx = t.Context()
			w.Handle("", func(context.Context, *Task) ([]byte, error) {
				t.Error("the handler began")
				return nil, nil
			})
			s := &session{w: w}
			w.lock()
			s.admitLocked(&lessorv1.Assignment{LeaseId: "lease"}, time.Now(), 0)
			test.stop(w, w.mu.attempts["lease"])
			w.unlock()
			w.serveAttempts()
			if got := w.mu.outbox.reports; len(got) != 1 || !test.want(got[0].item) {
				t.Errorf("the reports are %v, want one of a task that was %s", got, name)
			}
		})
	}
}

// A worker forgets a key of which nothing runs any more: there may be another concurrency key for
// each task.
func TestCountDownForgets(t *testing.T) {
	counts := map[string]int{"a": 2, "b": 1}
	countDown(counts, "a")
	countDown(counts, "b")
	if want := (map[string]int{"a": 1}); !maps.Equal(counts, want) {
		t.Errorf("the counts are %v, want %v", counts, want)
	}
}

// The log says why a connection was lost or not made, without what gRPC wraps around it.
func TestLossText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{noConnectionError(`connection error: desc = "transport: Error while dialing: dial tcp [::1]:7420: connect: connection refused"`), "no connection to the coordinator: dial tcp [::1]:7420: connect: connection refused"},
		{noConnectionError(`connection error: desc = "transport: authentication handshake failed: x509: \"a\""`), `no connection to the coordinator: authentication handshake failed: x509: "a"`},
		{noConnectionError(`connection error: desc = "cut`), `no connection to the coordinator: connection error: desc = "cut`},
		{noConnectionError("context canceled"), "no connection to the coordinator: context canceled"},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), "error reading from server: EOF"},
		{status.Error(codes.Internal, "fault"), "rpc error: code = Internal desc = fault"},
		{errIdle, errIdle.Error()},
	} {
		if got := lossText(c.err); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
}

// A coordinator that stands still is not said to require TLS: gRPC has given up waiting for the
// first bytes of a connection that it closed itself.
func TestSilentConnectionIsNotTakenForTLS(t *testing.T) {
	got := noConnectionError(`connection error: desc = "error reading server preface: raw-read tcp 127.0.0.1:2->127.0.0.1:1: use of closed network connection"`)
	if text := got.Error(); !errors.Is(got, ErrNoConnection) || strings.Contains(text, "TLS") || !strings.Contains(text, "does not answer") {
		t.Errorf("got %q, want that the coordinator does not answer", text)
	}
}

// A6: a checkpoint that a rejected one had replaced is not sent if a newer one was saved meanwhile;
// its call gets the answer to the heartbeat all the same.
func TestOlderCheckpointIsNotSent(t *testing.T) {
	t.Attr("rules", "A6")
	for number, want := range map[uint64]string{2: "", 4: "data"} {
		rs := renewals{saved: 3, next: renewal{
			checkpoint: []byte("data"), number: number,
			waiters: []waiter{{make(chan error, 1), number}},
		}}
		if r := rs.take(); string(r.checkpoint) != want || len(r.waiters) != 1 || rs.checkpointSent != (want != "") {
			t.Errorf("after checkpoint 3 was saved, number %d is sent as %q with %d waiters, want %q",
				number, r.checkpoint, len(r.waiters), want)
		}
	}
}
