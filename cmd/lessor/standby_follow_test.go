package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/standby"
)

// memPlace keeps the stores of a standby in memory. Each has a checksum of 7 for every keyspace.
type memPlace struct{ complete, copying store.Store }

func (p *memPlace) Complete() store.Store { return p.complete }

func (*memPlace) Older() store.Store { return nil }

func (p *memPlace) Empty() (store.Store, error) {
	p.copying = summed{memstore.New()}
	return p.copying, nil
}

func (p *memPlace) Replace() error {
	p.complete, p.copying = p.copying, nil
	return nil
}

type summed struct{ store.Store }

func (s summed) View(fn func(store.Reader) error) error {
	return s.Store.View(func(r store.Reader) error { return fn(summedReader{r}) })
}

type summedReader struct{ store.Reader }

func (summedReader) Sums() (sums [store.NumKeyspaces]uint64, err error) {
	for i := range sums {
		sums[i] = 7
	}
	return sums, nil
}

// scripted is a coordinator whose calls to FollowStore are served by one function after another.
type scripted struct {
	lessorv1.UnimplementedAdminServiceServer
	calls chan func(*scriptedCall) error
}

func (s *scripted) FollowStore(stream grpc.BidiStreamingServer[lessorv1.FollowStoreRequest, lessorv1.FollowStoreResponse]) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	return (<-s.calls)(&scriptedCall{stream: stream, start: m.GetStart()})
}

type scriptedCall struct {
	stop   context.CancelFunc // stops the follower
	state  *copyState         // of the follower
	stream grpc.BidiStreamingServer[lessorv1.FollowStoreRequest, lessorv1.FollowStoreResponse]
	start  *lessorv1.FollowStart
}

func (c *scriptedCall) begin(isCopy bool) {
	c.send(&lessorv1.FollowStoreResponse{Part: &lessorv1.FollowStoreResponse_Begin{
		Begin: &lessorv1.FollowBegin{Format: store.Current().Format(), Copy: isCopy, StoreBytes: 4096},
	}})
}

// commit sends a change that makes the position number n, n seconds after 1970, and its mark; sum
// is the checksum of each keyspace.
func (c *scriptedCall) commit(n uint64, sum uint64) { c.commitOf(1, n, sum) }

// commitOf is commit in that run of the coordinator.
func (c *scriptedCall) commitOf(run, n, sum uint64) {
	var b store.Batch
	records.PutIdentity(&b, records.Identity{Epoch: 1, Key: []byte("key")})
	records.PutPosition(&b, records.Position{Run: run, Number: n}, lease.Wall(n)*lease.Wall(time.Second))
	for i := range b.Len() {
		op := b.At(i)
		c.send(&lessorv1.FollowStoreResponse{Part: &lessorv1.FollowStoreResponse_Changes{
			Changes: &lessorv1.StoreChanges{Changes: []*lessorv1.StoreChange{{Keyspace: uint32(op.Keyspace), Key: op.Key, Value: op.Value}}},
		}})
	}
	c.send(&lessorv1.FollowStoreResponse{Part: &lessorv1.FollowStoreResponse_Mark{
		Mark: &lessorv1.StoreMark{Position: &lessorv1.StorePosition{Run: run, Number: n}, Complete: true, Sums: []uint64{sum}},
	}})
}

func (c *scriptedCall) send(m *lessorv1.FollowStoreResponse) { _ = c.stream.Send(m) } // the standby may have gone

// acked waits for an acknowledgement, and returns its number.
func (c *scriptedCall) acked() uint64 {
	m, _ := c.stream.Recv()
	return m.GetAck().GetPosition().GetNumber()
}

// followScript runs a follower against a coordinator with these calls, until the last one ends or
// the follower does. It returns what the follower has returned and logged.
func followScript(t *testing.T, calls ...func(*scriptedCall) error) (logged string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		lis, server, service := bufconn.Listen(1<<20), grpc.NewServer(),
			&scripted{calls: make(chan func(*scriptedCall) error, len(calls))}
		lessorv1.RegisterAdminServiceServer(server, service)
		go func() { _ = server.Serve(lis) }()
		defer server.Stop()
		cl, dialErr := dial("passthrough:///coordinator",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if dialErr != nil {
			t.Fatal(dialErr)
		}
		defer func() { _ = cl.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var log strings.Builder
		f := newFollower(cl.admin, "second", &memPlace{}, slog.New(slog.NewTextHandler(&log, nil)))
		for i, call := range calls {
			service.calls <- func(c *scriptedCall) error {
				if i == len(calls)-1 {
					defer cancel()
				}
				c.stop, c.state = cancel, &f.state
				return call(c)
			}
		}
		err = f.run(ctx)
		if closing := f.close(); closing != nil && !errors.Is(err, closing) {
			t.Error(closing)
		}
		logged = log.String()
	})
	return logged, err
}

// A standby has nothing at first, and gets a copy. After each outage it says which state it has
// made durable and goes on from there, with growing waits until it has caught up, and tells of each
// outage once.
func TestStandbyGoesOnWhereItWas(t *testing.T) {
	away := status.Error(codes.Unavailable, "restarting")
	var left time.Time
	want := leastFollowWait
	waits := func(*scriptedCall) error {
		if got := time.Since(left); got != want {
			t.Errorf("it came back after %v, want %v", got, want)
		}
		left, want = time.Now(), min(2*want, mostFollowWait)
		return away
	}
	log, err := followScript(t, func(c *scriptedCall) error {
		if c.start.GetName() != "second" || c.start.GetPosition() != nil {
			t.Errorf("start is %v, want the name and no position", c.start)
		}
		c.begin(true)
		c.commit(5, 7)
		if got := c.acked(); got != 5 {
			t.Errorf("acknowledged %d, want 5", got)
		}
		left = time.Now()
		return away
	}, waits, waits, waits, waits, waits, waits, waits, waits, waits, func(c *scriptedCall) error {
		if p := c.start.GetPosition(); p.GetRun() != 1 || p.GetNumber() != 5 {
			t.Errorf("start is %v, want position 5 of run 1", c.start)
		}
		c.begin(false)
		c.commit(6, 7)
		if got := c.acked(); got != 6 {
			t.Errorf("acknowledged %d, want 6", got)
		}
		left, want = time.Now(), leastFollowWait
		return away
	}, waits, waits)
	if err != nil {
		t.Errorf("run: %v, want nil", err)
	}
	if n := strings.Count(log, "restarting"); n != 2 {
		t.Errorf("two outages were logged %d times:\n%s", n, log)
	}
}

// A copy that was cut off goes on where it was. It is complete once, however often it was cut off.
func TestStandbyGoesOnWithItsCopy(t *testing.T) {
	part := func(c *scriptedCall, n uint64, copied *lessorv1.StoreCursor) error {
		c.send(&lessorv1.FollowStoreResponse{Part: &lessorv1.FollowStoreResponse_Mark{
			Mark: &lessorv1.StoreMark{Position: &lessorv1.StorePosition{Run: 1, Number: n}, Copied: copied},
		}})
		return status.Error(codes.Unavailable, "a line that breaks")
	}
	had := func(c *scriptedCall, n uint64, key string) {
		if s := c.start; s.GetPosition().GetNumber() != n || s.GetCopied().GetKeyspace() != 4 || string(s.GetCopied().GetKey()) != key {
			t.Errorf("start is %v, want position %d, and what was copied up to %q", s, n, key)
		}
		c.begin(false)
	}
	log, err := followScript(t, func(c *scriptedCall) error {
		c.begin(true)
		return part(c, 3, &lessorv1.StoreCursor{Keyspace: 4, Key: []byte("k")})
	}, func(c *scriptedCall) error {
		had(c, 3, "k")
		return part(c, 5, nil)
	}, func(c *scriptedCall) error {
		had(c, 5, "k")
		c.commit(6, 7)
		c.acked()
		return status.Error(codes.Unavailable, "a line that breaks")
	}, func(c *scriptedCall) error {
		if s := c.start; s.GetPosition().GetNumber() != 6 || s.GetCopied() != nil {
			t.Errorf("start is %v, want position 6, complete", s)
		}
		return nil
	})
	if err != nil || strings.Count(log, "the store is being copied") != 1 || strings.Count(log, "the copy goes on where it was") != 2 || strings.Count(log, "the copy is complete") != 1 {
		t.Errorf("run: %v, want nil; the log is\n%s", err, log)
	}
}

// A standby whose records differ from those of the coordinator asks for a full copy, even if
// nothing is committed any more.
func TestStandbyThatDiffersGetsANewCopy(t *testing.T) {
	var began time.Time
	log, err := followScript(t, func(c *scriptedCall) error {
		c.begin(true)
		c.commit(1, 7)
		c.acked()
		began = time.Now()
		c.commit(2, 8)
		<-c.stream.Context().Done()
		return nil
	}, func(c *scriptedCall) error {
		if c.start.GetPosition() != nil {
			t.Errorf("start is %v, want no position", c.start)
		}
		if took := time.Since(began); took != leastFollowWait {
			t.Errorf("it came after %v, want %v", took, leastFollowWait)
		}
		return nil
	})
	if err != nil || !strings.Contains(log, "made anew") {
		t.Errorf("run: %v, want nil; the log is\n%s", err, log)
	}
}

// A standby that is stopped closes its side, and ends when the coordinator does. It does not wait
// long for a coordinator that does not.
func TestStandbyIsStopped(t *testing.T) {
	var stopped time.Time
	for _, ends := range []bool{true, false} {
		_, err := followScript(t, func(c *scriptedCall) error {
			c.begin(true)
			c.commit(1, 7)
			c.acked()
			stopped = time.Now()
			c.stop()
			want := time.Duration(0)
			if _, err := c.stream.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("after the stop, the standby says %v, want that it closes its side", err)
			}
			if !ends {
				<-c.stream.Context().Done()
				want = goodbyeTime
			}
			if took := time.Since(stopped); took != want {
				t.Errorf("the stream ended after %v, want %v", took, want)
			}
			return nil
		})
		if err != nil {
			t.Errorf("run: %v, want nil", err)
		}
	}
}

// A refusal ends a standby that no coordinator has accepted; later it may pass, when a token is
// renewed. Another standby of the same name may leave, which the log says how to bring about;
// another format does not pass.
func TestWhatEndsAStandby(t *testing.T) {
	refused := func(*scriptedCall) error { return status.Error(codes.Unauthenticated, "no such token") }
	accepted := func(c *scriptedCall) error {
		c.begin(true)
		c.commit(1, 7)
		c.acked()
		return nil
	}
	format := func(change int) func(c *scriptedCall) error {
		return func(c *scriptedCall) error {
			c.send(&lessorv1.FollowStoreResponse{Part: &lessorv1.FollowStoreResponse_Begin{
				Begin: &lessorv1.FollowBegin{Format: uint32(int(store.Current().Format()) + change), Copy: true},
			}})
			<-c.stream.Context().Done()
			return nil
		}
	}
	for name, c := range map[string]struct {
		calls []func(*scriptedCall) error
		code  int
		text  string // "": it goes on
	}{
		"refused":        {calls: []func(*scriptedCall) error{refused, accepted}, code: exitFailed, text: "no such token"},
		"refused later":  {calls: []func(*scriptedCall) error{accepted, refused, accepted}},
		"unknown call":   {calls: []func(*scriptedCall) error{func(*scriptedCall) error { return status.Error(codes.Unimplemented, "unknown") }, accepted}, code: exitFailed, text: "does not know this call"},
		"name taken":     {calls: []func(*scriptedCall) error{func(*scriptedCall) error { return refusal.Status(standby.ErrNameTaken) }, accepted}},
		"too far behind": {calls: []func(*scriptedCall) error{accepted, func(*scriptedCall) error { return refusal.Status(standby.ErrBehind) }, accepted}},
		"older standby":  {calls: []func(*scriptedCall) error{format(1), accepted}, code: exitCannotStart, text: "this lessor, which is older, has"},
		"newer standby":  {calls: []func(*scriptedCall) error{format(-1), accepted}, code: exitCannotStart, text: "this lessor, which is newer, has"},
		"unknown keyspace": {calls: []func(*scriptedCall) error{func(c *scriptedCall) error {
			c.begin(true)
			c.send(&lessorv1.FollowStoreResponse{Part: &lessorv1.FollowStoreResponse_Changes{
				Changes: &lessorv1.StoreChanges{Changes: []*lessorv1.StoreChange{{Keyspace: 256, Key: []byte("k")}}},
			}})
			<-c.stream.Context().Done()
			return nil
		}, accepted}, code: exitStore, text: "there is no keyspace 255"},
		"older state": {calls: []func(*scriptedCall) error{accepted, func(c *scriptedCall) error {
			c.begin(true)
			c.commitOf(1, 7, 7)
			c.acked()
			return nil
		}, func(c *scriptedCall) error {
			c.send(&lessorv1.FollowStoreResponse{Part: &lessorv1.FollowStoreResponse_Begin{
				Begin: &lessorv1.FollowBegin{Format: store.Current().Format(), Copy: true},
			}})
			c.commitOf(2, 1, 7)
			<-c.stream.Context().Done()
			return nil
		}, accepted}, code: exitCannotStart, text: "an older state of its store"},
		"begin that lies": {calls: []func(*scriptedCall) error{func(c *scriptedCall) error { c.begin(false); return nil }, accepted}, code: exitStore, text: "no complete copy"},
	} {
		t.Run(name, func(t *testing.T) {
			log, err := followScript(t, c.calls...)
			got := &failure{}
			if err != nil {
				got = explain(standbyError(following{Coordinator: "c", Name: "n"}, err))
			}
			if name == "name taken" && !strings.Contains(log, "give each standby a --name of its own") {
				t.Errorf("the log does not say what to do:\n%s", log)
			}
			if got.code != c.code || (c.text == "") != (err == nil) || !strings.Contains(got.text, c.text) {
				t.Errorf("it ended with code %d, %q; want %d, %q. The log is\n%s", got.code, got.text, c.code, c.text, log)
			}
		})
	}
}
