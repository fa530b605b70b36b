package service_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/standby"
)

// How long a stop gives the last commits to reach the standbys, and the last answer to reach its
// client.
const (
	lastCommits = 3 * time.Second
	lastWords   = 500 * time.Millisecond
)

// testStandby is a standby that keeps what it receives in memory.
type testStandby struct {
	lessorv1.AdminService_FollowStoreClient
	begin *lessorv1.FollowBegin
	mark  *lessorv1.StoreMark // the last one
	has   content
}

// content is what a store has: values by keyspace and key.
type content map[store.Keyspace]map[string]string

func newContent() content {
	c := content{}
	for ks := range store.Keyspace(store.NumKeyspaces) {
		c[ks] = map[string]string{}
	}
	return c
}

// contentOf returns what a store has.
func contentOf(t *testing.T, st store.Store) content {
	t.Helper()
	all := newContent()
	err := st.View(func(r store.Reader) error {
		for ks, of := range all {
			if err := r.Scan(ks, nil, nil, func(key, value []byte) bool { of[string(key)] = string(value); return true }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// follow begins to follow, from a position; nil: from none.
func follow(ctx context.Context, t *testing.T, r *wiretest.Rig, name string, from *lessorv1.StorePosition) *testStandby {
	t.Helper()
	return followFrom(ctx, t, r, &lessorv1.FollowStart{Name: name, InstanceId: "instance", Position: from})
}

// followFrom begins to follow.
func followFrom(ctx context.Context, t *testing.T, r *wiretest.Rig, start *lessorv1.FollowStart) *testStandby {
	t.Helper()
	stream, err := r.Admin.FollowStore(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &testStandby{AdminService_FollowStoreClient: stream, has: newContent()}
	s.say(t, &lessorv1.FollowStoreRequest{Part: &lessorv1.FollowStoreRequest_Start{Start: start}})
	return s
}

// followWhole begins to follow, and receives and acknowledges a copy of the store.
func followWhole(t *testing.T, r *wiretest.Rig, name string) *testStandby {
	t.Helper()
	s := follow(t.Context(), t, r, name, nil)
	s.receive(t, (*lessorv1.StoreMark).GetComplete)
	s.ack(t)
	return s
}

// say sends a request. If the call has ended, the next Recv has the error.
func (s *testStandby) say(t *testing.T, m *lessorv1.FollowStoreRequest) {
	t.Helper()
	if err := s.Send(m); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// ack acknowledges the last mark.
func (s *testStandby) ack(t *testing.T) {
	t.Helper()
	s.say(t, &lessorv1.FollowStoreRequest{Part: &lessorv1.FollowStoreRequest_Ack{Ack: &lessorv1.FollowAck{Position: s.mark.GetPosition()}}})
	synctest.Wait()
}

// next receives one response, and applies its changes.
func (s *testStandby) next() error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	if begin := m.GetBegin(); begin != nil {
		s.begin = begin
	}
	if mark := m.GetMark(); mark != nil {
		s.mark = mark
	}
	for _, c := range m.GetChanges().GetChanges() {
		if of := s.has[store.Keyspace(c.GetKeyspace())]; c.GetDelete() {
			delete(of, string(c.GetKey()))
		} else {
			of[string(c.GetKey())] = string(c.GetValue())
		}
	}
	return nil
}

// receive receives up to a mark of which until is true.
func (s *testStandby) receive(t *testing.T, until func(*lessorv1.StoreMark) bool) {
	t.Helper()
	for s.mark = nil; s.mark == nil || !until(s.mark); {
		if err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
}

// receiveNewest receives up to the newest state of the store.
func (s *testStandby) receiveNewest(t *testing.T, st store.Store) {
	t.Helper()
	synctest.Wait() // the entry in the audit that the call has made belongs to it
	at := positionOf(t, st)
	newest := func(m *lessorv1.StoreMark) bool {
		return m.GetPosition().GetRun() == at.Run && m.GetPosition().GetNumber() == at.Number
	}
	if !newest(s.mark) {
		s.receive(t, newest)
	}
}

// positionOf returns the position of a store.
func positionOf(t *testing.T, st store.Store) (at records.Position) {
	t.Helper()
	err := st.View(func(r store.Reader) (err error) {
		at, _, err = records.PositionOf(r)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// receiveAll receives until the call ends, and returns its error.
func (s *testStandby) receiveAll() error {
	for {
		if err := s.next(); err != nil {
			return err
		}
	}
}

// wantEqual checks that the standby has what the store has.
func (s *testStandby) wantEqual(t *testing.T, st store.Store) {
	t.Helper()
	for ks, want := range contentOf(t, st) {
		if !maps.Equal(s.has[ks], want) {
			t.Errorf("the standby has %d records of %v that are not those of the store, which has %d",
				len(s.has[ks]), ks, len(want))
		}
	}
}

// standbys returns what GetStatus says of them.
func standbys(ctx context.Context, t *testing.T, r *wiretest.Rig) []*lessorv1.Standby {
	t.Helper()
	s, err := r.Admin.GetStatus(ctx, &lessorv1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return s.GetStandbys()
}

// A standby gets the whole store and then each commit. GetStatus, the metrics and the log say how
// far it is.
func TestFollowStore(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		r.WantMetric(t, `lessor_standbys{state="complete"}`, 0)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = bytes.Repeat([]byte("p"), 3*service.FollowFrame) })
		r.Lease(t)
		began := time.Now()
		s := follow(t.Context(), t, r, "b", nil)
		s.receive(t, (*lessorv1.StoreMark).GetComplete)
		s.receiveNewest(t, st)
		if !s.begin.GetCopy() || s.begin.GetFormat() != store.Current().Format() || s.begin.GetStoreBytes() == 0 {
			t.Errorf("the first response is %v, want a copy of format %d", s.begin, store.Current().Format())
		}
		s.wantEqual(t, st)
		r.WantMetric(t, `lessor_standbys{state="copying"}`, 1)
		wiretest.WantContains(t, "the metrics", wiretest.GetPath(t, r, "/metrics", http.StatusOK),
			"\nlessor_standby_behind_seconds NaN\n")
		if got := standbys(t.Context(), t, r); len(got) != 1 || got[0].GetComplete() {
			t.Errorf("before the standby has acknowledged its copy, the status shows %v; want one that is not complete", got)
		}
		s.ack(t)
		got := standbys(t.Context(), t, r)
		if len(got) != 1 || got[0].GetName() != "b" || !got[0].GetComplete() || got[0].GetCommitsBehind() != 0 || got[0].Behind != nil ||
			!got[0].GetConnectedAt().AsTime().Equal(began) || got[0].GetSentBytes() < 3*service.FollowFrame {
			t.Errorf("after that, the status shows %v; want that b is complete since %v, and not behind", got, began)
		}
		for range 2 {
			r.Submit(t, nil)
			time.Sleep(time.Second)
		}
		if got := standbys(t.Context(), t, r)[0]; got.GetCommitsBehind() < 2 || got.GetBehind().AsDuration() != 2*time.Second {
			t.Errorf("two tasks later, the status shows %v; want that it is behind for 2 s, by two commits", got)
		}
		r.WantMetric(t, `lessor_standby_behind_seconds`, 2)
		s.receiveNewest(t, st)
		s.wantEqual(t, st)
		s.ack(t)
		if got := standbys(t.Context(), t, r)[0]; got.GetCommitsBehind() != 0 || got.Behind != nil {
			t.Errorf("when it has them, the status shows %v; want that it is not behind", got)
		}
		r.WantMetric(t, `lessor_standbys{state="complete"}`, 1)
		r.WantMetric(t, `lessor_standby_behind_seconds`, 0)
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := s.receiveAll(); !errors.Is(err, io.EOF) {
			t.Errorf("when the standby has closed its side, the call ends with %v, want OK", err)
		}
		r.WantMetric(t, `lessor_standbys{state="complete"}`, 0)
		for _, want := range []string{`"a standby follows","standby":"b","copy":true`, `"a standby is complete","standby":"b"`, `"a standby does not follow any more","standby":"b"`} {
			if n := strings.Count(r.Log.String(), want); n != 1 {
				t.Errorf("the log says %s %d times, want once", want, n)
			}
		}
	})
}

// A standby that comes back gets only what it lacks.
func TestStandbyComesBack(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		s := followWhole(t, r, "b")
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		_ = s.receiveAll()
		r.Submit(t, nil)
		again := follow(t.Context(), t, r, "b", s.mark.GetPosition())
		again.has = s.has
		again.receive(t, (*lessorv1.StoreMark).GetComplete) // perhaps before the entry in the audit that the call makes
		again.receiveNewest(t, st)
		if again.begin.GetCopy() {
			t.Errorf("the first response is %v, want no copy, but what has changed", again.begin)
		}
		again.wantEqual(t, st)
	})
}

// Commits wait for a standby, if they are to. A standby that comes back at once finds them waiting
// still: what its own call commits, an entry in the audit, does not keep it from following.
func TestCommitsWaitForAStandbyThatComesBack(t *testing.T) {
	st := memstore.New()
	wiretest.ServeWith(t, st, coordinator.Config{Standbys: standby.Options{Wait: 10 * time.Second}}, func(t *testing.T, r *wiretest.Rig) {
		s := followWhole(t, r, "b")
		for range 2 {
			s.receiveNewest(t, st)
			s.ack(t)
			r.WantMetric(t, "lessor_standby_awaited", 1)
			_ = s.CloseSend()
			_ = s.receiveAll()
			again := follow(t.Context(), t, r, "b", s.mark.GetPosition())
			again.has = s.has
			s = again
		}
		s.receiveNewest(t, st)
		s.ack(t)
		s.wantEqual(t, st)
		if log := r.Log.String(); strings.Count(log, "everything that is acknowledged is on a standby") != 1 || strings.Contains(log, "no standby keeps up") {
			t.Error("commits have stopped to wait for the standby")
		}
		_ = s.CloseSend()
		_ = s.receiveAll()
		began := time.Now()
		r.Submit(t, nil)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("without a standby, a submit takes %v, want the 10 s that it waits for one", took)
		}
		r.WantMetric(t, "lessor_standby_awaited", 0)
		wiretest.WantContains(t, "the log", r.Log.String(), "no standby keeps up")
	})
}

// A copy that was cut off goes on where it was, also with what has changed since then, and sends
// nothing twice.
func TestCopyGoesOn(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		for range 20 {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 100_000) })
		}
		ctx, cut := context.WithCancel(t.Context())
		s := follow(ctx, t, r, "second", nil)
		s.receive(t, func(m *lessorv1.StoreMark) bool {
			return m.GetCopied().GetKeyspace() == uint32(store.Spec) && len(s.has[store.Spec]) > 5
		})
		copied, got := s.mark, s.has
		cut()
		synctest.Wait()
		r.Submit(t, nil)
		s = followFrom(t.Context(), t, r, &lessorv1.FollowStart{
			Name: "second", InstanceId: "instance", Position: copied.GetPosition(), Copied: copied.GetCopied(),
		})
		s.has = got
		before := len(got[store.Spec])
		s.receive(t, (*lessorv1.StoreMark).GetComplete)
		s.receiveNewest(t, st)
		s.wantEqual(t, st)
		if s.begin.GetCopy() {
			t.Error("the standby was told to begin anew")
		}
		if len(got[store.Spec]) <= before {
			t.Errorf("the standby had %d specs when it was cut off, of %d, want a part", before, len(got[store.Spec]))
		}
	})
}

// A standby says first who it is, and then only what it has. Anything else is refused, with the
// field.
func TestWhatAStandbySays(t *testing.T) {
	start := func(name string, at *lessorv1.StorePosition) *lessorv1.FollowStoreRequest {
		return &lessorv1.FollowStoreRequest{Part: &lessorv1.FollowStoreRequest_Start{Start: &lessorv1.FollowStart{Name: name, InstanceId: "instance", Position: at}}}
	}
	ack := func(at *lessorv1.StorePosition) *lessorv1.FollowStoreRequest {
		return &lessorv1.FollowStoreRequest{Part: &lessorv1.FollowStoreRequest_Ack{Ack: &lessorv1.FollowAck{Position: at}}}
	}
	part := func(at *lessorv1.StorePosition, c *lessorv1.StoreCursor) *lessorv1.FollowStoreRequest {
		m := start("b", at)
		m.GetStart().Copied = c
		return m
	}
	newer := start("b", nil)
	newer.GetStart().ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	wiretest.Serve(t, memstore.New(), func(t *testing.T, r *wiretest.Rig) {
		for name, tt := range map[string]struct {
			says  []*lessorv1.FollowStoreRequest
			field string
		}{
			"nothing":                  {nil, "start"},
			"an empty message":         {[]*lessorv1.FollowStoreRequest{{}}, "start"},
			"ack first":                {[]*lessorv1.FollowStoreRequest{ack(&lessorv1.StorePosition{Run: 1})}, "start"},
			"no name":                  {[]*lessorv1.FollowStoreRequest{start("", nil)}, "start.name"},
			"a long name":              {[]*lessorv1.FollowStoreRequest{start(wiretest.Text(257), nil)}, "start.name"},
			"a name of two lines":      {[]*lessorv1.FollowStoreRequest{start("a\nb", nil)}, "start.name"},
			"a position without a run": {[]*lessorv1.FollowStoreRequest{start("b", &lessorv1.StorePosition{Number: 7})}, "start.position.run"},
			"a part of nothing":        {[]*lessorv1.FollowStoreRequest{part(nil, &lessorv1.StoreCursor{Keyspace: 3})}, "start.position"},
			"a part beyond the end": {
				[]*lessorv1.FollowStoreRequest{part(&lessorv1.StorePosition{Run: 1},
					&lessorv1.StoreCursor{Keyspace: uint32(store.NumKeyspaces) + 1})},
				"start.copied.keyspace",
			},
			"a field of a newer standby": {[]*lessorv1.FollowStoreRequest{newer}, "start"},
			"start again":                {[]*lessorv1.FollowStoreRequest{start("b", nil), start("b", nil)}, "ack"},
			"ack of nothing":             {[]*lessorv1.FollowStoreRequest{start("b", nil), ack(nil)}, "ack.position.run"},
			"ack of what was not sent":   {[]*lessorv1.FollowStoreRequest{start("b", nil), ack(&lessorv1.StorePosition{Run: 1, Number: 1})}, "ack.position"},
		} {
			stream, err := r.Admin.FollowStore(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range tt.says {
				if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}
			if tt.says == nil {
				_ = stream.CloseSend()
			}
			s := &testStandby{AdminService_FollowStoreClient: stream, has: newContent()}
			err = s.receiveAll()
			fields := detail.Of[*errdetails.BadRequest](status.Convert(err)).GetFieldViolations()
			if status.Code(err) != codes.InvalidArgument || len(fields) != 1 || fields[0].GetField() != tt.field {
				t.Errorf("%s: %v, want INVALID_ARGUMENT for %s", name, err, tt.field)
			}
		}
	})
}

// A standby is cut off if it has come again, if it reads nothing for too long, or if commits that
// it lacks are kept no longer. Then it may call again.
func TestStandbyIsCutOff(t *testing.T) {
	large := func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) }
	for name, tt := range map[string]struct {
		cfg  coordinator.Config
		do   func(t *testing.T, r *wiretest.Rig)
		code string
	}{
		"it has come again": {coordinator.Config{}, func(t *testing.T, r *wiretest.Rig) { followWhole(t, r, "b") }, refusal.CodeStandbyReplaced},
		"reads nothing": {
			coordinator.Config{Backup: coordinator.Backup{Stall: 2 * time.Second}}, func(t *testing.T, r *wiretest.Rig) {
				r.Submit(t, large)
				// the stream has room for one large frame of 5, which may take 5 times as long, and
				// not for another
				time.Sleep(13 * time.Second)
			}, refusal.CodeStandbyBehind,
		},
		"is too slow": {
			coordinator.Config{Standbys: standby.Options{Buffer: 1 << 20}}, func(t *testing.T, r *wiretest.Rig) {
				for range 5 {
					r.Submit(t, large)
				}
			}, refusal.CodeStandbyBehind,
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			wiretest.ServeWith(t, st, tt.cfg, func(t *testing.T, r *wiretest.Rig) {
				s := followWhole(t, r, "b")
				tt.do(t, r)
				if err := s.receiveAll(); status.Code(err) != codes.Aborted || refusal.CodeOf(err) != tt.code {
					t.Errorf("the call ended with %v, want ABORTED and %s", err, tt.code)
				}
				again := followWhole(t, r, "b")
				again.receiveNewest(t, st)
				again.wantEqual(t, st)
			})
		})
	}
}

// A stop sends the standbys that keep up all that was committed, also what was committed during the
// stop, before it ends them with UNAVAILABLE.
func TestStopLetsStandbysFollow(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		s := followWhole(t, r, "b")
		// which is still being copied to, and reads nothing
		slow := follow(t.Context(), t, r, "slow", nil)
		// which is not sent as a whole until the standby reads
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) })
		release := r.SubmitAndBlockCommit(t, st)
		time.AfterFunc(2*time.Second, release)
		began := time.Now()
		r.Stop()
		time.Sleep(2*time.Second + lastCommits/2)
		var err error
		for err == nil {
			before := s.mark
			if err = s.next(); s.mark != before {
				s.ack(t)
			}
		}
		if status.Code(err) != codes.Unavailable || refusal.CodeOf(err) != refusal.CodeStopping {
			t.Errorf("the call ended with %v, want UNAVAILABLE and %s", err, refusal.CodeStopping)
		}
		if err := <-r.Served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= 2*time.Second+lastCommits {
			t.Errorf("the stop took %v, want less than %v after the commit", took, lastCommits)
		}
		s.wantEqual(t, st)
		if err := slow.receiveAll(); status.Code(err) != codes.Unavailable {
			t.Errorf("the call of the other standby ended with %v, want UNAVAILABLE", err)
		}
	})
}

// A standby that acknowledges nothing holds up a stop for no longer than a few seconds.
func TestStopDoesNotWaitForSlowStandbys(t *testing.T) {
	wiretest.Serve(t, memstore.New(), func(t *testing.T, r *wiretest.Rig) {
		s := followWhole(t, r, "b")
		r.Submit(t, nil)
		began := time.Now()
		r.Stop()
		if err := <-r.Served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > lastCommits+2*lastWords {
			t.Errorf("the stop took %v, want at most %v", took, lastCommits+2*lastWords)
		}
		if err := s.receiveAll(); status.Code(err) != codes.Unavailable {
			t.Errorf("the call ended with %v, want UNAVAILABLE", err)
		}
	})
}

// X2: a standby has the data of all tenants, so only operators of the host tenant may run one. Only
// callers of that tenant see the standbys.
func TestWhoMayFollow(t *testing.T) {
	t.Attr("rules", "X2")
	wiretest.ServeWith(t, memstore.New(), coordinator.Config{Auth: &gate.Auth{}, HostTenant: "host"}, func(t *testing.T, r *wiretest.Rig) {
		for tenant, may := range map[string]bool{"host": true, "acme": false, gate.DefaultTenant: false} {
			token, _ := r.Issue(t, tenant, auth.Operator)
			s := follow(wiretest.WithToken(t.Context(), token), t, r, "of "+tenant, nil)
			err := s.next()
			if (err == nil) != may || !may && (status.Code(err) != codes.PermissionDenied || refusal.CodeOf(err) != refusal.CodeForbidden) {
				t.Errorf("an operator of tenant %q: %v, want that it may follow: %v", tenant, err, may)
			}
		}
		for tenant, want := range map[string]int{"host": 1, "acme": 0} {
			token, _ := r.Issue(t, tenant, auth.Viewer)
			if got := standbys(wiretest.WithToken(t.Context(), token), t, r); len(got) != want {
				t.Errorf("a viewer of tenant %q sees %v, want %d standbys", tenant, got, want)
			}
		}
	})
}

// A response has at most followFrame bytes, or one change. The standby gets the more time for the
// next one the larger it was.
func TestFramesOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b store.Batch
		for range 1000 {
			b.Put(store.Task, []byte("key"), make([]byte, 1000))
		}
		b.Put(store.Task, []byte("large"), make([]byte, 3*service.FollowFrame))
		b.Delete(store.Task, []byte("key"))
		ops := make([]store.Op, b.Len())
		for i := range ops {
			ops[i] = b.At(i)
		}
		var sent []*lessorv1.StoreChange
		slow := time.Duration(0)
		out := service.NewFollowSink(t.Context(), time.Second, func(m *lessorv1.FollowStoreResponse) error {
			all := m.GetChanges().GetChanges()
			if size := proto.Size(m); size > service.FollowFrame && len(all) > 1 {
				t.Errorf("a response has %d changes and %d bytes, want at most %d", len(all), size, service.FollowFrame)
			}
			sent = append(sent, all...)
			time.Sleep(slow)
			return nil
		})
		if err := out.Changes(ops); err != nil || len(sent) != len(ops) {
			t.Fatalf("%d of %d changes were sent (%v)", len(sent), len(ops), err)
		}
		for i, c := range sent {
			if op := ops[i]; c.GetKeyspace() != uint32(op.Keyspace) || !bytes.Equal(c.GetKey(), op.Key) || c.GetDelete() != op.Delete ||
				!op.Delete && !bytes.Equal(c.GetValue(), op.Value) {
				t.Fatalf("change %d was sent as another one", i)
			}
		}
		for _, tt := range []struct {
			before []store.Op
			slow   time.Duration
			ok     bool
		}{{ops[:1], 900 * time.Millisecond, true}, {ops[:1], 1100 * time.Millisecond, false}, {ops[1000:1001], 3900 * time.Millisecond, true}, {ops[1000:1001], 4100 * time.Millisecond, false}} {
			slow = 0
			if err := out.Changes(tt.before); err != nil {
				t.Fatal(err)
			}
			slow = tt.slow
			if err := out.Mark(standby.Mark{}); tt.ok != (err == nil) || !tt.ok && !errors.Is(err, refusal.ErrStandbyStall) {
				t.Errorf("a mark that takes %v after %d bytes: %v, want that it is sent: %v",
					tt.slow, len(tt.before[0].Value), err, tt.ok)
			}
			time.Sleep(time.Second) // until the send has returned
			synctest.Wait()
		}
	})
}

// A commit that waits for a standby is not a slow disk, and does not hold up a stop for as long.
func TestWaitForAStandbyIsNoSlowDisk(t *testing.T) {
	const wait = 45 * time.Second
	st := memstore.New()
	wiretest.ServeWith(t, st, coordinator.Config{Standbys: standby.Options{Wait: wait}}, func(t *testing.T, r *wiretest.Rig) {
		s := followWhole(t, r, "b")
		synctest.Wait()
		s.receiveNewest(t, st)
		s.ack(t)
		r.WantMetric(t, "lessor_standby_awaited", 1)
		submit := func() chan error {
			answered := make(chan error, 1)
			go func() {
				_, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
				answered <- err
			}()
			synctest.Wait()
			return answered
		}
		answered := submit()
		time.Sleep(20 * time.Second)
		if text := wiretest.GetPath(t, r, "/readyz", http.StatusOK); text != "ready\n" {
			t.Errorf("/readyz says %q, want %q", text, "ready\n")
		}
		s.receiveNewest(t, st)
		s.ack(t)
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if log := r.Log.String(); strings.Contains(log, "the disk is slow") {
			t.Error("the log says that the disk is slow")
		}
		answered = submit()
		began := time.Now()
		r.Stop()
		if err := <-r.Served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*lastCommits+2*lastWords {
			t.Errorf("the stop took %v, want at most %v", took, 2*lastCommits+2*lastWords)
		}
		if err := <-answered; err != nil {
			t.Errorf("the submit that was under way got %v, want an answer", err)
		}
	})
}
