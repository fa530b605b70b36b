package service

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"hash"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/every"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

const (
	backupChunk     = 256 << 10 // bytes of one response
	backupDiskCheck = 100 * time.Millisecond
)

// backups is what the coordinator knows of backups.
type backups struct {
	underWay atomic.Bool

	mu    sync.Mutex
	times records.Backups // when the last ones ended
	last  string          // id of the last one; empty if it could not be sent, or none was begun since the start
	told  bool            // its client has said what became of it
}

// begin makes a backup the last one. Its client may confirm it before the call has ended.
func (b *backups) begin(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last, b.told = id, false
}

// fail forgets the last backup, and reports whether its client has not said what became of it.
func (b *backups) fail() (untold bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = ""
	return !b.told
}

// confirm notes that the client of a backup has said what became of it. known is false if it is not
// the last one; first is false if it is a repeat.
func (b *backups) confirm(id string) (known, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, first = id == b.last, !b.told
	b.told = b.told || known
	return known, known && first
}

// Backup streams a copy of the store (A11).
func (s *adminService) Backup(
	req *lessorv1.BackupRequest, stream grpc.ServerStreamingServer[lessorv1.BackupResponse],
) error {
	if bad := convert.Unknown("", req); bad != nil {
		return refusal.Status(bad)
	}
	if !s.backups.underWay.CompareAndSwap(false, true) {
		return refusal.Status(refusal.ErrBackupBusy)
	}
	defer s.backups.underWay.Store(false)
	ctx, cancel := s.untilStop(stream.Context())
	defer cancel()
	ctx, cancel = context.WithTimeoutCause(ctx, s.BackupTimeout, refusal.ErrBackupLate)
	defer cancel()
	ctx, cut := context.WithCancelCause(ctx)
	defer s.cutIfDiskFills(cut)()
	out := &backupWriter{ctx: ctx, stall: s.BackupStall, send: stream.Send, sum: sha256.New()}
	id := rand.Text()
	s.backups.begin(id)
	if err := s.copyTo(out, id); err != nil {
		if s.backups.fail() {
			s.keepTime(false)
			s.Logger.WarnContext(ctx, "a backup failed", "error", err, "sent_bytes", out.bytes)
		}
		return refusal.Status(err)
	}
	s.Logger.InfoContext(ctx, "a backup was sent; it counts once its client has confirmed it", "bytes", out.bytes)
	return nil
}

// ConfirmBackup says what became of the last backup at its client.
func (s *adminService) ConfirmBackup(
	ctx context.Context, req *lessorv1.ConfirmBackupRequest,
) (*lessorv1.ConfirmBackupResponse, error) {
	f := s.fields()
	problem := f.Text("problem", req.GetProblem(), convert.MaxReason)
	if req.GetBackupId() == "" {
		f.Fail("backup_id", "is missing")
	}
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	known, first := s.backups.confirm(req.GetBackupId())
	if !known {
		return nil, refusal.Status(refusal.ErrNoBackup)
	}
	if first {
		s.keepTime(problem == "")
		if problem == "" {
			s.Logger.InfoContext(ctx, "a backup was taken")
		} else {
			s.Logger.WarnContext(ctx, "a backup failed at its client", "problem", problem)
		}
	}
	return &lessorv1.ConfirmBackupResponse{}, nil
}

// cutIfDiskFills cuts a backup off when the disk is full and the store has grown since the backup
// began: if it went on growing, it would use up the disk reserve too, and then no verdict could be
// committed. A backup during which the store need not grow goes on. stop ends the watch.
func (s *adminService) cutIfDiskFills(cut context.CancelCauseFunc) (stop func()) {
	before := s.Store.Stats().FileBytes
	stopWatch := every.Interval(backupDiskCheck, func() {
		if s.DiskFull() && s.Store.Stats().FileBytes > before {
			cut(refusal.ErrBackupDisk)
		}
	})
	return func() {
		stopWatch()
		cut(nil)
	}
}

// keepTime notes that a backup has ended, for the metrics and for those of later starts. If the
// time cannot be stored, only a restart loses it.
func (s *adminService) keepTime(done bool) {
	s.backups.mu.Lock()
	defer s.backups.mu.Unlock()
	times := &s.backups.times
	if now := s.Engine.Now().Wall; done {
		times.Done = now
	} else {
		times.Failed = now
	}
	s.ShowBackups(*times)
	err := s.Engine.Keep(context.Background(), "", func(b *store.Batch) { records.PutBackups(b, *times) })
	if err != nil {
		s.Logger.Warn("the time of a backup is not stored", "error", err)
	}
}

// lastBackups reads when earlier backups ended.
func lastBackups(st store.Store) (times records.Backups, err error) {
	err = st.View(func(r store.Reader) (err error) {
		times, err = records.LastBackups(r)
		return err
	})
	return times, err
}

// copyTo sends all parts of a backup. It releases the snapshot when it returns, even if the client
// has stopped reading.
func (s *adminService) copyTo(out *backupWriter, id string) error {
	begin := &lessorv1.BackupBegin{
		BackupId: id, Format: store.Current().Format(), Epoch: s.Engine.Epoch(),
		TakenAt: convert.Stamp(s.Engine.Now().Wall), StoreBytes: uint64(s.Store.Stats().FileBytes),
	}
	if err := out.pass(&lessorv1.BackupResponse{Part: &lessorv1.BackupResponse_Begin{Begin: begin}}); err != nil {
		return err
	}
	chunks := bufio.NewWriterSize(out, backupChunk)
	if _, err := s.Store.Snapshot(chunks); err != nil {
		return err
	}
	if err := chunks.Flush(); err != nil {
		return err
	}
	end := &lessorv1.BackupEnd{Bytes: out.bytes, Sha256: out.sum.Sum(nil)}
	return out.pass(&lessorv1.BackupResponse{Part: &lessorv1.BackupResponse_End{End: end}})
}

// backupWriter sends the bytes written to it as responses. It returns an error when one send takes
// longer than stall. That send ends with the call.
type backupWriter struct {
	ctx   context.Context //nolint:containedctx // the context of the call; a backupWriter serves only one call
	stall time.Duration
	send  func(*lessorv1.BackupResponse) error
	sum   hash.Hash
	bytes uint64
}

// Write sends a copy of p, because a send that stalls may still read the copy after Write has
// returned.
func (w *backupWriter) Write(p []byte) (int, error) {
	_, _ = w.sum.Write(p) // never fails
	w.bytes += uint64(len(p))
	data := append([]byte(nil), p...)
	if err := w.pass(&lessorv1.BackupResponse{Part: &lessorv1.BackupResponse_Data{Data: data}}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *backupWriter) pass(part *lessorv1.BackupResponse) error {
	return sendWithin(w.ctx, w.stall, refusal.ErrBackupStall, func() error { return w.send(part) })
}

// sendWithin sends a message of a stream. It returns late when that takes longer than stall, and
// the cause when ctx ends. The send then ends with the call.
func sendWithin(ctx context.Context, stall time.Duration, late error, send func() error) error {
	sent := make(chan error, 1)
	go func() { sent <- send() }()
	slow := time.NewTimer(stall)
	defer slow.Stop()
	select {
	case err := <-sent:
		return err
	case <-slow.C:
		return late
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
