package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// backupCmd is lessor backup.
type backupCmd struct {
	server `embed:""`

	File  string `type:"file" arg:"" placeholder:"FILE" help:"Where to write the backup."`
	Force bool   `typed:"" help:"Replace FILE if it exists."`
}

// Help is shown below the flags.
func (backupCmd) Help() string {
	return `Copies the whole store of a running coordinator: every change that was acknowledged before the call, and no change only in part. The file gets its
name when it is complete, flushed to the disk and verified; until then it is beside it as FILE.partial-*. It contains the tasks of all tenants and the
keys that sign leases and tokens, so keep it as secret as the store. lessor restore makes a store from it.

Examples:
  lessor backup /backups/lessor-$(date +%F).db
  lessor backup --token-file ann.token --json lessor.backup`
}

// backupInfo is what lessor backup --json prints.
type backupInfo struct {
	File    string    `json:"file"`
	Bytes   uint64    `json:"bytes"`
	SHA256  string    `json:"sha256"`
	Format  uint32    `json:"format"`
	Epoch   uint32    `json:"epoch"`
	Tasks   uint64    `json:"tasks"`
	TakenAt time.Time `json:"taken_at"`

	id string // for the coordinator
}

func (t backupInfo) String() string {
	return fmt.Sprintf("%s: %s, %s, epoch %d, taken at %s, sha256 %s", t.File, words.Bytes(t.Bytes),
		counted(t.Tasks, "task"), t.Epoch,
		t.TakenAt.Format(time.RFC3339), t.SHA256)
}

func (c backupCmd) Run(a *app) (err error) {
	defer a.catchSignals()()
	file, err := newPendingFile(c.File, c.Force, secret)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.discard()) }()
	t := backupInfo{File: c.File}
	return c.with(a, func(cl *client) error {
		err := c.take(a.ctx, cl.admin, file, &t)
		if told := t.confirm(a.ctx, cl.admin, err); told != nil && err == nil {
			a.note("warning: %s is good, but the coordinator does not count it as a backup: %s",
				c.File, explain(told).text)
		}
		if err != nil {
			return err
		}
		return unheard(a.line(t, t.String()), "", "the backup %s was taken", c.File)
	})
}

// take receives a backup, verifies it, and gives it its name.
func (c backupCmd) take(
	ctx context.Context, admin lessorv1.AdminServiceClient, file *pendingFile, t *backupInfo,
) error {
	if err := receive(ctx, admin, file, t); err != nil {
		return stopped(ctx, err)
	}
	if err := c.check(file, t); err != nil {
		return err
	}
	return file.keep()
}

// confirmTimeout is how long a backup waits until the coordinator has noted what became of it.
const confirmTimeout = 5 * time.Second

// confirm tells the coordinator what became of the backup, for its log, its metrics and who watches
// them. It knows itself of one that it could not send.
func (t *backupInfo) confirm(ctx context.Context, admin lessorv1.AdminServiceClient, failed error) error {
	if t.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	req := &lessorv1.ConfirmBackupRequest{BackupId: t.id}
	if failed != nil {
		text := explain(failed).text
		req.Problem = strings.ToValidUTF8(text[:min(len(text), convert.MaxReason)], "")
	}
	_, err := admin.ConfirmBackup(ctx, req)
	return err
}

// errCut means that the stream of the backup ended before its last part.
var errCut = errors.New("the backup was cut off before its end")

// receive writes the backup that the coordinator streams, and checks that it is complete.
func receive(ctx context.Context, admin lessorv1.AdminServiceClient, to io.Writer, t *backupInfo) error {
	stream, err := admin.Backup(ctx, &lessorv1.BackupRequest{})
	if err != nil {
		return err
	}
	sum := sha256.New()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = errCut
		}
		if err != nil {
			return err
		}
		switch part := m.GetPart().(type) {
		case *lessorv1.BackupResponse_Begin:
			if err := t.begin(part.Begin); err != nil {
				return err
			}
		case *lessorv1.BackupResponse_Data:
			_, _ = sum.Write(part.Data) // never fails
			if _, err := to.Write(part.Data); err != nil {
				return err
			}
			t.Bytes += uint64(len(part.Data))
		case *lessorv1.BackupResponse_End:
			// until the call ends, with which the next backup may begin; nothing more is needed of
			// this one, whatever becomes of it
			_, _ = stream.Recv()
			return t.end(part.End, sum)
		}
	}
}

// begin refuses a format that this program does not know before the data is sent. Otherwise the
// verification would fail later, although nothing is wrong with the backup.
func (t *backupInfo) begin(b *lessorv1.BackupBegin) error {
	if known := store.Current().Format(); b.GetFormat() > known {
		return fail(exitCannotStart, `use the coordinator's version of lessor; "lessor status" shows it`,
			"%v", &store.NewerFormatError{Have: b.GetFormat(), Want: known})
	}
	t.Format, t.Epoch, t.TakenAt, t.id = b.GetFormat(), b.GetEpoch(), b.GetTakenAt().AsTime(), b.GetBackupId()
	return nil
}

// end compares the received data with the size and digest that the coordinator sent.
func (t *backupInfo) end(said *lessorv1.BackupEnd, sum hash.Hash) error {
	got := sum.Sum(nil)
	if said.GetBytes() != t.Bytes || !bytes.Equal(said.GetSha256(), got) {
		return fail(exitFailed, "run the command again",
			"the backup was damaged on the way: %d bytes arrived, %d were sent, or their checksum differs",
			t.Bytes, said.GetBytes())
	}
	t.SHA256 = hex.EncodeToString(got)
	return nil
}

// check verifies the received copy.
func (c backupCmd) check(file *pendingFile, t *backupInfo) (err error) {
	st, err := boltstore.OpenReadOnly(file.Name(), boltstore.Options{})
	_, broken := brokenStore(err)
	switch {
	case broken, errors.As(err, new(*store.TornError)):
		return invalidBackup(err)
	case err != nil: // the check flushes the file, which fails if its disk is full
		return writeError(c.File, err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	v, err := verifyOrFail(st)
	if err != nil {
		return invalidBackup(err)
	}
	t.Tasks = v.Tasks
	return nil
}

func invalidBackup(err error) error {
	return fail(exitFailed, "the coordinator's store may be damaged; keep the older backups",
		"the backup does not verify and was deleted: %v", err)
}
