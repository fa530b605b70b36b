package service

import (
	"context"
	"crypto/sha256"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/standby"
)

// What the tests of package service_test need of the inside. They are not in this package, because
// they use whole coordinators.
const (
	BackupDiskCheck = backupDiskCheck
	FollowFrame     = followFrame
	KickedAtMost    = kickedAtMost
	KickedFor       = kickedFor
)

// Bounds that tests change.
var (
	MaxAwaitedBytes = &maxAwaitedBytes
	MaxPageBytes    = &maxPageBytes
	MaxScan         = &maxScan
	MostAwaited     = &mostAwaited
	MostHeads       = &mostHeads
	SubmitWindow    = &submitWindow
	WatchStep       = &watchStep
)

// Functions that tests call.
var (
	ExplanationProto = explanationProto
	RefusalProto     = refusalProto
)

// Shared returns what the services share. A test may replace parts of it.
func (s *Services) Shared() *Deps { return &s.shared.Deps }

// Listing is a list to which page tokens belong.
type Listing = listing

// NewListing is newListing.
func NewListing(kind, tenant string, request proto.Message) Listing {
	return newListing(kind, tenant, request)
}

// Token is token.
func (l listing) Token(cursor []byte) string { return l.token(cursor) }

// Cursor is cursor.
func (l listing) Cursor(f *convert.Fields, token string) []byte { return l.cursor(f, token) }

// CopyTo sends all parts of a backup.
func (s *Services) CopyTo(ctx context.Context, stall time.Duration, send func(*lessorv1.BackupResponse) error) error {
	admin := &adminService{shared: s.shared}
	return admin.copyTo(&backupWriter{ctx: ctx, stall: stall, sum: sha256.New(), send: send}, "")
}

// NewFollowSink returns what sends to a standby.
func NewFollowSink(ctx context.Context, stall time.Duration, send func(*lessorv1.FollowStoreResponse) error) standby.Sink {
	return &followSink{ctx: ctx, stall: stall, send: send}
}

// Submissions reads the specs of a frame.
func (s *Services) Submissions(ctx context.Context, req *lessorv1.SubmitStreamRequest) {
	res := &lessorv1.SubmitStreamResponse{Results: make([]*lessorv1.SubmitResult, len(req.GetTasks()))}
	_, _, _ = (&taskService{shared: s.shared}).submissions(ctx, req, res)
}

// Task reads a task of the default tenant.
func (s *Services) Task(id lease.TaskID) (t *lease.Task, err error) {
	err = s.shared.view(func(r store.Reader) (err error) {
		t, err = readTask(r, gate.DefaultTenant, id)
		return err
	})
	return t, err
}

// Awaiter is an AwaitTasks whose requests and answers pass through a test.
type Awaiter struct{ *awaiter }

// NewAwaiter begins an AwaitTasks.
func (s *Services) NewAwaiter(ctx context.Context, send func(any) error) Awaiter {
	return Awaiter{&awaiter{
		taskService: &taskService{shared: s.shared}, ctx: ctx, who: gate.Identify(ctx),
		ends: s.shared.Engine.Ends(), send: send,
	}}
}

// Run serves a stream whose client sends nothing.
func (a Awaiter) Run() error { return a.run(nil, nil) }

// Take does what a request asks for.
func (a Awaiter) Take(req *lessorv1.AwaitTasksRequest) error { return a.take(req) }

// Look waits for ends, and tells them.
func (a Awaiter) Look() error {
	<-a.ends.More()
	return a.tell(a.ends.Take())
}

// Waits returns for how many tasks it waits, and how many of them count.
func (a Awaiter) Waits() (all, counted int) { return a.ends.Len(), a.counted }

// Close ends the call.
func (a Awaiter) Close() { a.close() }

// RunWatch is a watch of the run "run" of the default tenant that learns the news from a test.
type RunWatch struct{ *runWatcher }

// WatchRun begins a watch.
func (s *Services) WatchRun(ctx context.Context, send func(*lessorv1.WatchTaskResponse) error) RunWatch {
	return RunWatch{&runWatcher{
		shared: s.shared, ctx: ctx, space: engine.Space{
			Tenant:    gate.DefaultTenant,
			Workspace: convert.DefaultWorkspace,
		}, run: "run",
		toldOf: map[lease.TaskID]uint64{}, eventSender: &eventSender{send: send},
	}}
}

// Tell tells the watch of something.
func (w RunWatch) Tell(n *engine.News) error { return w.tell(n) }

// PassOn tells it of something, and that it has missed other news before.
func (w RunWatch) PassOn(n *engine.News, missed engine.Missed) error {
	return passOn(w.runWatcher, n, missed)
}

// Skipped tells it that it has missed news.
func (w RunWatch) Skipped(n, gone int) error { return w.skipped(n, gone) }

// CatchUp has it send what is in the store.
func (w RunWatch) CatchUp() error { return w.catchUp() }
