package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/standby"
)

// The wait between two streams doubles from least to most. It begins anew after a stream that
// lasted longer than the wait before it, and after one that was cut off once the copy was complete:
// it is the network that fails, however often, and meanwhile results may wait for the standby.
const (
	leastFollowWait = 200 * time.Millisecond
	mostFollowWait  = 30 * time.Second
)

// follower keeps the replica of a standby equal to the store of a coordinator: it follows over one
// stream after another.
type follower struct {
	admin      lessorv1.AdminServiceClient
	name       string
	instance   string // of this process
	replica    *standby.Replica
	acks       chan records.Position // at most one: the newest that was not sent
	failures   chan error            // at most one, of the replica
	log        *slog.Logger
	onComplete func() // called when the copy is complete after the begin of a stream
	state      copyState

	accepted bool      // a coordinator has answered begin, so the settings are right
	problem  string    // what was logged last about why it does not follow; empty: it follows, or has not tried
	copying  bool      // from the begin of the copy until it is complete
	began    time.Time // the copy
	caughtUp bool      // during the last stream the copy was complete; settled when follow returns
}

type followStream = grpc.BidiStreamingClient[lessorv1.FollowStoreRequest, lessorv1.FollowStoreResponse]

func newFollower(admin lessorv1.AdminServiceClient, name string, place standby.Place, log *slog.Logger) *follower {
	f := &follower{
		admin: admin, name: name, instance: rand.Text(), acks: make(chan records.Position, 1),
		failures: make(chan error, 1), log: log, onComplete: func() {},
	}
	f.replica = standby.NewReplica(place, func(p records.Position, written lease.Wall) {
		f.state.acknowledge(written)
		replace(f.acks, p)
	}, func(err error) { replace(f.failures, err) })
	return f
}

// replace leaves the newest value in a channel that holds one. Only one goroutine may do so at a
// time.
func replace[T any](c chan T, v T) {
	forget(c)
	c <- v
}

func forget[T any](c chan T) {
	select {
	case <-c:
	default:
	}
}

// replicaError is an error of the replica: of its store, or of what was sent to it.
type replicaError struct{ error }

func (e replicaError) Unwrap() error { return e.error }

// run follows until ctx ends, and then returns nil, or until another try cannot help.
func (f *follower) run(ctx context.Context) error {
	wait := leastFollowWait
	for {
		start := time.Now()
		err := f.follow(ctx)
		if ctx.Err() != nil && !errors.As(err, new(replicaError)) {
			return nil
		}
		if f.final(err) {
			return err
		}
		if detail.ClosedByAge(err) {
			wait = leastFollowWait
			continue
		}
		f.note(err)
		if time.Since(start) > wait || f.caughtUp && status.Code(err) == codes.Unavailable {
			wait = leastFollowWait
		}
		asked, _ := retryDelay(status.Convert(err))
		select {
		case <-time.After(max(wait, asked)):
		case <-ctx.Done():
			return nil
		}
		wait = min(2*wait, mostFollowWait)
	}
}

// final reports whether another try cannot help. Once a coordinator has accepted the standby, its
// refusals may pass: a proxy answers for it, or a token is renewed late.
func (f *follower) final(err error) bool {
	switch {
	case errors.As(err, new(*standby.DivergedError)):
		return false
	case errors.As(err, new(replicaError)), errors.As(err, new(*failure)):
		return true
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
		return !f.accepted
	}
	return false
}

// note notes why the standby does not follow, and logs it unless it has logged that last.
func (f *follower) note(err error) {
	told := explain(err)
	f.state.lose(told.text)
	if diverged, ok := errors.AsType[*standby.DivergedError](err); ok {
		f.log.Warn("the copy is not equal to the store of the coordinator; it is made anew", "error", diverged.Error())
		return
	}
	if told.text != f.problem {
		f.log.Warn("the standby does not follow now; it tries again until it does",
			"error", told.text, "hint", told.hint)
		f.problem = told.text
	}
}

// follow follows over one stream. The first try of an outage fails at once, to tell why; later ones
// wait for the connection.
func (f *follower) follow(ctx context.Context) error {
	from, err := f.replica.Start()
	if err != nil {
		return replicaError{err}
	}
	f.state.found(from.Written)
	f.caughtUp = false
	forget(f.acks) // it was of the stream before
	forget(f.failures)
	stop := ctx.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	begun := make(chan struct{})
	defer hurry(stop, begun, cancel)()
	stream, err := f.admin.FollowStore(ctx, grpc.WaitForReady(f.problem != ""))
	if err != nil {
		return err
	}
	close(begun)
	start := f.startProto(from)
	// Recv returns the error
	_ = stream.Send(&lessorv1.FollowStoreRequest{Part: &lessorv1.FollowStoreRequest_Start{Start: start}})
	acking := make(chan error)
	go func() {
		defer close(acking)
		if err := f.sendAcks(ctx, stop, stream); err != nil {
			cancel()
			acking <- replicaError{err}
		}
	}()
	err = f.receive(stream)
	cancel()
	return cmp.Or(<-acking, err)
}

// startProto says what the standby has.
func (f *follower) startProto(from standby.Start) *lessorv1.FollowStart {
	start := &lessorv1.FollowStart{Name: f.name, InstanceId: f.instance}
	if from.At != (records.Position{}) {
		start.Position = &lessorv1.StorePosition{Run: from.At.Run, Number: from.At.Number}
	}
	if c := from.Copied; c != nil {
		start.Copied = &lessorv1.StoreCursor{Keyspace: uint32(c.Keyspace), Key: c.Key}
	}
	return start
}

// hurry cancels a stream after stop, at once if it has not begun, or else when it has not ended by
// itself within goodbyeTime. The caller must call ended.
func hurry(stop, begun <-chan struct{}, cancel func()) (ended func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-stop:
		case <-over:
			return
		}
		select {
		case <-begun:
		default:
			cancel()
		}
		select {
		case <-time.After(goodbyeTime):
			cancel()
		case <-over:
		}
	}()
	return func() { close(over) }
}

// goodbyeTime is how long a standby that stops waits until the coordinator has noticed.
const goodbyeTime = time.Second

// receive gives the replica what comes.
func (f *follower) receive(stream followStream) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the coordinator ended the stream")
		}
		if err != nil {
			return err
		}
		switch part := m.GetPart().(type) {
		case *lessorv1.FollowStoreResponse_Begin:
			err = f.begin(part.Begin)
		case *lessorv1.FollowStoreResponse_Changes:
			ops, size := opsOf(part.Changes.GetChanges())
			f.state.receive(size)
			err = f.replica.Changes(ops)
		case *lessorv1.FollowStoreResponse_Mark:
			err = f.replica.Mark(markOf(part.Mark))
		}
		if err != nil {
			return replicaError{err}
		}
	}
}

// begin begins a stream that the coordinator has accepted.
func (f *follower) begin(b *lessorv1.FollowBegin) error {
	if err := requireSameFormat(b.GetFormat()); err != nil {
		return err
	}
	f.accepted, f.problem = true, ""
	f.state.begin(b.GetCopy(), int64(b.GetStoreBytes()))
	switch {
	case b.GetCopy():
		f.copying, f.began = true, time.Now()
		f.log.Info("the store is being copied", "store", words.Bytes(b.GetStoreBytes()))
	case f.copying:
		f.log.Info("the copy goes on where it was")
	}
	return f.replica.Begin(standby.Begin{
		Format: b.GetFormat(), Copy: b.GetCopy(),
		StoreBytes: int64(b.GetStoreBytes()),
	})
}

// requireSameFormat refuses a store of another format: of its records this program would know
// neither the keys nor the checksums.
func requireSameFormat(theirs uint32) error {
	ours := store.Current().Format()
	which := "older"
	switch {
	case theirs == ours:
		return nil
	case theirs < ours:
		which = "newer"
	}
	return fail(exitCannotStart, `use the coordinator's version of lessor; "lessor status" shows it`,
		"the store of the coordinator has format %d, and this lessor, which is %s, has format %d", theirs, which, ours)
}

// opsOf converts changes, and returns the bytes of their keys and values.
func opsOf(changes []*lessorv1.StoreChange) (ops []store.Op, size int64) {
	ops = make([]store.Op, len(changes))
	for i, c := range changes {
		ops[i] = store.Op{
			Keyspace: keyspaceOf(c.GetKeyspace()),
			Key:      c.GetKey(),
			Value:    c.GetValue(),
			Delete:   c.GetDelete(),
		}
		size += int64(len(c.GetKey()) + len(c.GetValue()))
	}
	return ops, size
}

func markOf(m *lessorv1.StoreMark) standby.Mark {
	mark := standby.Mark{At: positionOf(m.GetPosition()), Complete: m.GetComplete(), Sums: m.GetSums()}
	if c := m.GetCopied(); c != nil {
		mark.Copied = &standby.Cursor{Keyspace: keyspaceOf(c.GetKeyspace()), Key: c.GetKey()}
	}
	return mark
}

func positionOf(p *lessorv1.StorePosition) records.Position {
	return records.Position{Run: p.GetRun(), Number: p.GetNumber()}
}

// keyspaceOf converts the number of a keyspace. One beyond all that there can be becomes the last
// of these, which nobody has.
func keyspaceOf(n uint32) store.Keyspace { return store.Keyspace(min(n, math.MaxUint8)) }

// sendAcks sends one newest position after another. It returns nil when ctx or the stream ends,
// which receive notices, and the error of the replica if it fails.
func (f *follower) sendAcks(ctx context.Context, stop <-chan struct{}, stream followStream) error {
	for first := true; ; first = false {
		var p records.Position
		select {
		case p = <-f.acks:
		case err := <-f.failures:
			return err
		case <-stop:
			_ = stream.CloseSend() // the coordinator ends the stream then
			return nil
		case <-ctx.Done():
			return nil
		}
		if first {
			f.complete()
		}
		ack := &lessorv1.FollowAck{Position: &lessorv1.StorePosition{Run: p.Run, Number: p.Number}}
		if stream.Send(&lessorv1.FollowStoreRequest{Part: &lessorv1.FollowStoreRequest_Ack{Ack: ack}}) != nil {
			return nil
		}
	}
}

// complete tells that the copy is complete. The replica acknowledges nothing before that.
func (f *follower) complete() {
	f.caughtUp = true
	if f.copying {
		f.copying = false
		f.log.Info("the copy is complete", "took", time.Since(f.began).Round(time.Millisecond))
	} else {
		f.log.Info("the copy follows again, and went on where it was")
	}
	f.onComplete()
}

// close waits until what was received is durable.
func (f *follower) close() error {
	if err := f.replica.Close(); err != nil && !errors.As(err, new(*standby.DivergedError)) {
		return replicaError{err}
	}
	return nil
}
