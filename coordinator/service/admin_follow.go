package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/standby"
)

// followFrame is how many bytes of changes a response has at most, unless a single change is
// larger.
const followFrame = 256 << 10

// errLeft ends the call of a standby that has closed its side.
var errLeft = errors.New("it was stopped")

// FollowStore sends a standby what it lacks of the store, and then each commit. It lasts until the
// standby leaves or is cut off, or until the coordinator has stopped and the standby has its last
// commit.
func (s *adminService) FollowStore(
	stream grpc.BidiStreamingServer[lessorv1.FollowStoreRequest, lessorv1.FollowStoreResponse],
) error {
	start, err := s.readStart(stream)
	if err == nil && s.Stopping.Err() != nil {
		err = engine.ErrStopped
	}
	if err != nil {
		return refusal.Status(err)
	}
	name := start.name
	logFields(stream.Context(), "standby", name)
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	defer context.AfterFunc(s.Following, func() { end(engine.ErrStopped) })()
	follower, err := s.Feed.Attach(ctx, name, start.instance)
	if err != nil {
		return refusal.Status(err)
	}
	defer follower.Close()
	out := &followSink{
		ctx: ctx, log: s.Logger.With("standby", name), copies: start.from.Copied != nil,
		stall: s.BackupStall, send: stream.Send,
	}
	go func() {
		end(s.recovered(ctx, func() error { return s.readAcks(stream, follower, out) }))
	}()
	err = follower.Run(ctx, start.from, out)
	level, why := slog.LevelWarn, err.Error()
	switch {
	case errors.Is(err, engine.ErrStopped), errors.Is(err, standby.ErrReplaced):
		level = slog.LevelInfo
	case stream.Context().Err() != nil:
		why = "its connection has ended"
	}
	out.log.Log(ctx, level, "a standby does not follow any more", "why", why)
	if errors.Is(err, errLeft) {
		return nil
	}
	return refusal.Status(err)
}

// followStart is the first message of a standby.
type followStart struct {
	name, instance string
	from           standby.Start
}

// readStart reads the first message of a standby.
func (s *adminService) readStart(
	stream grpc.BidiStreamingServer[lessorv1.FollowStoreRequest, lessorv1.FollowStoreResponse],
) (start followStart, err error) {
	m, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		m, err = &lessorv1.FollowStoreRequest{}, nil
	}
	if err != nil {
		return start, err
	}
	f := s.fields()
	f.Err = convert.Unknown("", m)
	if m.GetStart() == nil {
		f.Fail("start", "must come first")
	}
	start.name = f.Required("start.name", m.GetStart().GetName())
	start.instance = f.Required("start.instance_id", m.GetStart().GetInstanceId())
	if p := m.GetStart().GetPosition(); p != nil {
		start.from.At = readPosition(f, "start.position", p)
	}
	if c := m.GetStart().GetCopied(); c != nil {
		start.from.Copied = readCursor(f, "start.copied", c)
		if m.GetStart().GetPosition() == nil {
			f.Fail("start.position", "is required with start.copied")
		}
	}
	if f.Err != nil { // as a nil error of another type, it would not be nil
		return start, f.Err
	}
	return start, nil
}

func readPosition(f *convert.Fields, path string, p *lessorv1.StorePosition) records.Position {
	if p.GetRun() == 0 {
		f.Fail(path+".run", "must not be 0")
	}
	return records.Position{Run: p.GetRun(), Number: p.GetNumber()}
}

func readCursor(f *convert.Fields, path string, c *lessorv1.StoreCursor) *standby.Cursor {
	if c.GetKeyspace() > uint32(store.NumKeyspaces) {
		f.Fail(path+".keyspace", "is %d; the limit is %d", c.GetKeyspace(), store.NumKeyspaces)
	}
	return &standby.Cursor{Keyspace: store.Keyspace(c.GetKeyspace()), Key: c.GetKey()}
}

// readAcks passes on what a standby acknowledges, and returns why it does not go on.
func (s *adminService) readAcks(
	stream grpc.BidiStreamingServer[lessorv1.FollowStoreRequest, lessorv1.FollowStoreResponse],
	follower *standby.Follower, out *followSink,
) error {
	complete := false
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errLeft
		}
		if err != nil {
			return err
		}
		f := s.fields()
		f.Err = convert.Unknown("", m)
		if m.GetAck() == nil {
			f.Fail("ack", "must come after start")
		}
		at := readPosition(f, "ack.position", m.GetAck().GetPosition())
		if f.Err != nil {
			return f.Err
		}
		if follower.Ack(at) != nil {
			return &lease.FieldError{Field: "ack.position", Problem: "was not sent"}
		}
		if !complete && follower.Status().Complete {
			complete = true
			out.log.Info("a standby is complete")
		}
	}
}

// standbysProto converts what is known of the standbys that follow.
func standbysProto(all []standby.Status) []*lessorv1.Standby {
	shown := make([]*lessorv1.Standby, len(all))
	for i, one := range all {
		shown[i] = &lessorv1.Standby{
			Name: one.Name, ConnectedAt: convert.Stamp(lease.WallOf(one.Since)), Complete: one.Complete,
			CommitsBehind: one.Commits, SentBytes: uint64(one.Sent),
		}
		if one.Commits > 0 {
			shown[i].Behind = durationpb.New(one.Behind)
		}
	}
	return shown
}

// followSink sends what a Follower has for its standby.
type followSink struct {
	ctx    context.Context //nolint:containedctx // the context of the call; a followSink serves only one call
	log    *slog.Logger
	copies bool          // the standby has a part of a copy
	stall  time.Duration // how long the standby may need for a followFrame
	send   func(*lessorv1.FollowStoreResponse) error
	last   int // bytes of changes in the last response
}

// Begin implements standby.Sink.
func (f *followSink) Begin(b standby.Begin) error {
	f.log.Info("a standby follows", "copy", b.Copy || f.copies)
	begin := &lessorv1.FollowBegin{Format: b.Format, Copy: b.Copy, StoreBytes: uint64(b.StoreBytes)}
	return f.pass(&lessorv1.FollowStoreResponse{Part: &lessorv1.FollowStoreResponse_Begin{Begin: begin}}, 0)
}

// Changes implements standby.Sink.
func (f *followSink) Changes(ops []store.Op) error {
	for len(ops) > 0 {
		n, size := 1, opSize(ops[0])
		for n < len(ops) && size+opSize(ops[n]) <= followFrame {
			size += opSize(ops[n])
			n++
		}
		if err := f.pass(&lessorv1.FollowStoreResponse{Part: &lessorv1.FollowStoreResponse_Changes{Changes: changesProto(ops[:n])}}, size); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// opSize is about how many bytes a change takes in a response.
func opSize(op store.Op) int {
	const rest = 16
	return len(op.Key) + len(op.Value) + rest
}

func changesProto(ops []store.Op) *lessorv1.StoreChanges {
	all := make([]lessorv1.StoreChange, len(ops))
	out := &lessorv1.StoreChanges{Changes: make([]*lessorv1.StoreChange, len(ops))}
	for i, op := range ops {
		one := &all[i]
		one.Keyspace, one.Key, one.Delete = uint32(op.Keyspace), op.Key, op.Delete
		if !op.Delete {
			one.Value = op.Value
		}
		out.Changes[i] = one
	}
	return out
}

// Mark implements standby.Sink.
func (f *followSink) Mark(m standby.Mark) error {
	at := &lessorv1.StorePosition{Run: m.At.Run, Number: m.At.Number}
	mark := &lessorv1.StoreMark{Position: at, Complete: m.Complete, Sums: m.Sums}
	if m.Copied != nil {
		mark.Copied = &lessorv1.StoreCursor{Keyspace: uint32(m.Copied.Keyspace), Key: m.Copied.Key}
	}
	return f.pass(&lessorv1.FollowStoreResponse{Part: &lessorv1.FollowStoreResponse_Mark{Mark: mark}}, 0)
}

// pass sends a response with so many bytes of changes. gRPC takes it when the standby has read most
// of the one before, which may need longer if it was large.
func (f *followSink) pass(part *lessorv1.FollowStoreResponse, size int) error {
	stall := f.stall * time.Duration(cmp.Or((f.last+followFrame-1)/followFrame, 1))
	f.last = size
	return sendWithin(f.ctx, stall, refusal.ErrStandbyStall, func() error { return f.send(part) })
}
