package workercheck

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// TestMain fails if a goroutine is still running after the tests. What the cases find is tested in
// test/flawed, with processes.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	committed   = lessorv1.Verdict_VERDICT_COMMITTED
	cancelled   = lessorv1.Verdict_VERDICT_CANCELLED
	unspecified = lessorv1.Verdict_VERDICT_UNSPECIFIED
)

// A verdict on a stream belongs to the oldest word without an answer; one that is sent again, to
// the word whose answer was lost.
func TestVerdictsFindTheirWords(t *testing.T) {
	r := newRecord()
	r.grant("t1", "l1", 1)
	first, beaten := r.say(complete, "t1", "l1", 0, "a", ""), r.say(heartbeat, "t1", "l1", 0, "", "")
	second := r.say(complete, "t1", "l1", 0, "a", "")
	for _, of := range []struct {
		kind kind
		want *word
	}{{complete, first}, {heartbeat, beaten}, {fail, nil}} {
		if w := r.unanswered("l1", of.kind); w != of.want {
			t.Errorf("unanswered(%s) = %v, want %v", of.kind, w, of.want)
		}
	}
	r.answer(first, committed, "NONE", "lost")
	if w := r.unanswered("l1", complete); w != second {
		t.Errorf("after the answer to the first word: %v, want the second one", w)
	}
	r.answer(second, unspecified, "", "")
	second.verdict = committed
	if w := r.unanswered("l1", complete); w != first {
		t.Errorf("after the answer to the second word: %v, want the first one, whose answer was lost", w)
	}
	r.answer(first, committed, "NONE", "")
	if w := r.unanswered("l1", complete); w != nil {
		t.Errorf("after all answers: %v, want none", w)
	}
	if w := r.unanswered("l2", complete); w != nil {
		t.Errorf("of an unknown lease: %v, want none", w)
	}
}

// V4: a report may be repeated while there is no answer to it, after a while, and not once there is
// one.
func TestRepeatsInVain(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for _, c := range []struct {
		name         string
		told, second int // milliseconds after the first; told 0: never
		lost         bool
		content      string
		want         bool
	}{
		{"at once", 1000, 10, false, "", true},
		{"unanswered for a second", 0, 1000, false, "", false},
		{"unanswered, and another one", 0, 1000, false, "another", true},
		{"as the answer comes", 1000, 1050, false, "", false},
		{"after the answer", 100, 1000, false, "", true},
		{"after an answer that was lost", 100, 1000, true, "", false},
	} {
		first, second := &word{kind: complete, at: at(1), lost: c.lost},
			&word{kind: complete, at: at(1 + c.second), content: c.content}
		if c.told > 0 {
			first.told = at(1 + c.told)
		}
		if a := (&attempt{words: []*word{first, second}}); a.repeatedInVain() != c.want {
			t.Errorf("%s: repeated in vain = %v, want %v", c.name, !c.want, c.want)
		}
	}
}

// The worker knows that a lease is lost once a CANCELLED has reached it, by an answer or a cancel,
// and not before.
func TestTellsLossOnceItHasArrived(t *testing.T) {
	r := newRecord()
	r.grant("t1", "l1", 1)
	r.grant("t1", "l1", 1) // once more
	if n := len(r.of("t1")); n != 1 {
		t.Fatalf("%d attempts, want 1", n)
	}
	a := r.of("t1")[0]
	w := r.say(heartbeat, "t1", "", 1, "", "")
	r.answer(w, cancelled, "REVOKED", "lost")
	if !a.lost.IsZero() {
		t.Error("it is said to know of the loss, but the answer was lost")
	}
	r.answer(w, cancelled, "REVOKED", "")
	if a.lost.IsZero() {
		t.Error("it is not said to know of the loss")
	}
	r.grant("t2", "l2", 1)
	r.cancel("l2", "REVOKED")
	if r.of("t2")[0].lost.IsZero() {
		t.Error("it is not said to know of the loss after a cancel")
	}
	if w := r.say(complete, "t3", "l3", 1, "", ""); w != nil {
		t.Errorf("a word about an attempt that was never granted: %v, want none", w)
	}
}

// A case may end, for example by a signal, when it has stopped its coordinator and not started it
// again.
func TestRigEndsWhileItsCoordinatorIsStopped(t *testing.T) {
	r, err := newRig(t.Context(), &Config{Queue: "q", Type: "t"}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.shutdown(); err != nil {
		t.Error(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.end()
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for ever")
	}
}

// The same report is one with equal kind, output, artifacts and error (V13), by gRPC and by HTTP.
func TestSameReports(t *testing.T) {
	report := func(change func(*lessorv1.FailRequest)) report {
		m := &lessorv1.FailRequest{
			ReportId: "r",
			Error:    &lessorv1.TaskError{Category: lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE, Message: "m"},
		}
		change(m)
		return m
	}
	_, was, category := describe(report(func(*lessorv1.FailRequest) {}))
	if category != "USER_CODE" {
		t.Errorf("category %q, want USER_CODE", category)
	}
	_, same, _ := describe(report(func(m *lessorv1.FailRequest) {
		m.CompletedAt, m.Metrics, m.Error.RetryAfter = timestamppb.Now(), map[string]float64{"x": 1}, durationpb.New(time.Second)
	}))
	_, other, _ := describe(report(func(m *lessorv1.FailRequest) { m.Error.Message = "n" }))
	if was != same || was == other {
		t.Errorf("same: %t, want true; other: %t, want false", was == same, was == other)
	}

	for _, of := range []struct {
		body     string
		kind     kind
		category string
		same     bool
	}{
		{`{"attempt": 1, "outcome": "SUCCEEDED", "output": {"n": 1}, "completedAt": "x", "metrics": {"a": 1}}`, complete, "", true},
		{`{"attempt": 1, "outcome": "SUCCEEDED", "output": {"n": 2}}`, complete, "", false},
		{`{"attempt": 1, "outcome": "CANCELLED"}`, fail, "CANCELLED", false},
		{`{"attempt": 1, "outcome": "FAILED", "error": {"category": "TIMEOUT"}}`, fail, "TIMEOUT", false},
	} {
		k, content, category := describeBody(t, of.body)
		_, was, _ := describeBody(t, `{"outcome": "SUCCEEDED", "output": {"n": 1}}`)
		if k != of.kind || category != of.category || (content == was) != of.same {
			t.Errorf("%s: %s %q, the same: %t; want %s %q, %t",
				of.body, k, category, content == was, of.kind, of.category, of.same)
		}
	}
}

func describeBody(t *testing.T, body string) (k kind, content, category string) {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		t.Fatal(err)
	}
	return describeJSON("completed", fields)
}

// All times of the coordinator are shifted, and each message and object has a field more; what
// belongs to users stays as it is.
func TestDistortion(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	d := &distortion{newer: true, clock: time.Hour}
	m := &lessorv1.SessionResponse{Ts: timestamppb.New(at), Payload: &lessorv1.SessionResponse_Dispatch{Dispatch: &lessorv1.Dispatch{
		Assignments: []*lessorv1.Assignment{{
			ExpiresAt: timestamppb.New(at), ExpiresIn: durationpb.New(time.Second),
			LeaseId: "l",
		}},
	}}}
	d.message(m.ProtoReflect())
	a := m.GetDispatch().GetAssignments()[0]
	if later := at.Add(time.Hour); !m.GetTs().AsTime().Equal(later) || !a.GetExpiresAt().AsTime().Equal(later) || a.GetExpiresIn().AsDuration() != time.Second {
		t.Errorf("times: %v, want all of them an hour later, and the same span", m)
	}
	for _, part := range []proto.Message{m, m.GetDispatch(), a} {
		if len(part.ProtoReflect().GetUnknown()) == 0 {
			t.Errorf("%T has no unknown field", part)
		}
	}

	v, err := decode([]byte(`{"assignments": [{"expiresAt": "2026-01-02T03:04:05Z", "expiresInMs": 2000, "payload": {"expiresAt": "2026-01-02T03:04:05Z"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(d.json(v))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"assignments":[{"expiresAt":"2026-01-02T04:04:05Z","expiresInMs":2000,"payload":{"expiresAt":"2026-01-02T03:04:05Z"},` +
		`"someday":{"from":"the future"}}],"someday":{"from":"the future"}}`
	if string(b) != want {
		t.Errorf("%s, want %s", b, want)
	}
}

// An acknowledgement of a frame is also about all frames before it on the stream, and about none
// after it.
func TestAcknowledgedDispatches(t *testing.T) {
	first, second, third := &attempt{number: 1}, &attempt{number: 2}, &attempt{number: 3}
	d := dispatches{}
	d.add("d1", []*attempt{first})
	d.add("d2", []*attempt{second})
	d.add("d1", []*attempt{first}) // sent again
	d.add("verdicts", nil)
	d.add("d3", []*attempt{third})
	for _, of := range []struct {
		id   string
		want []*attempt
	}{{"unknown", nil}, {"d1", []*attempt{first}}, {"d1", nil}, {"verdicts", []*attempt{second}}, {"d3", []*attempt{third}}} {
		if got := d.upTo(of.id); !slices.Equal(got, of.want) {
			t.Errorf("an ack of %s acknowledges %v, want %v", of.id, got, of.want)
		}
	}
}

// W8: an instance is a process: the id is the same on each stream. Without an id, each stream that
// resumes no session is another instance.
func TestInstancesOfHandshakes(t *testing.T) {
	r := newRecord()
	for _, of := range []struct {
		instance string
		resume   *lessorv1.Resume
		want     int
	}{
		{"a", nil, 1},
		{"a", nil, 1},
		{"a", &lessorv1.Resume{}, 1},
		{"b", nil, 2},
		{"", &lessorv1.Resume{}, 2},
		{"", nil, 3},
		{"", nil, 4},
	} {
		r.handshake(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Handshake{Handshake: &lessorv1.Handshake{
			Worker: &lessorv1.WorkerInfo{InstanceId: of.instance}, Resume: of.resume,
		}}})
		if n := len(r.known); n != of.want {
			t.Errorf("after a handshake of %q, resume %v: %d instances, want %d", of.instance, of.resume, n, of.want)
		}
	}
}
