package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// brokenBackup returns the backup of a store with a record that cannot be read.
func brokenBackup(t *testing.T) []byte {
	t.Helper()
	st, err := boltstore.Open(t.TempDir(), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Put(store.Spec, []byte("key"), []byte("value"))
	if err := st.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	var backup bytes.Buffer
	if _, err := st.Snapshot(&backup); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return backup.Bytes()
}

// A received backup that is not a store, or has findings, shows that the coordinator's store may be
// damaged. If the received file cannot be read back, which can mean that its disk is full, that
// says nothing about the coordinator: the exit code is that of a file that cannot be written.
func TestCheckOfAReceivedBackup(t *testing.T) {
	for _, c := range []struct {
		name    string
		data    []byte
		missing bool
		code    int
	}{
		{"not a store", make([]byte, 1<<16), false, exitFailed},
		{"has findings", brokenBackup(t), false, exitFailed},
		{"cannot be read back", make([]byte, 1<<16), true, exitCannotStart},
	} {
		name := filepath.Join(t.TempDir(), "copy.db")
		file, err := newPendingFile(name, false, secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(c.data); err != nil {
			t.Fatal(err)
		}
		if c.missing {
			if err := os.Remove(file.Name()); err != nil {
				t.Fatal(err)
			}
		}
		var said bytes.Buffer
		if code := report(streams{err: &said}, backupCmd{File: name}.check(file, new(backupInfo))); code != c.code {
			t.Errorf("%s: exit code %d, want %d; it said %s", c.name, code, c.code, &said)
		}
		if err := file.discard(); err != nil {
			t.Error(err)
		}
	}
}

// told notes what a command says of its backup.
type told struct {
	lessorv1.AdminServiceClient
	said []*lessorv1.ConfirmBackupRequest
}

func (a *told) ConfirmBackup(
	_ context.Context, req *lessorv1.ConfirmBackupRequest, _ ...grpc.CallOption,
) (*lessorv1.ConfirmBackupResponse, error) {
	a.said = append(a.said, req)
	return &lessorv1.ConfirmBackupResponse{}, nil
}

// The coordinator is told whether the file of a backup could be kept, also if the command was
// stopped; not if the backup never began.
func TestBackupTellsWhatBecameOfIt(t *testing.T) {
	stoppedCtx, stop := context.WithCancel(t.Context())
	stop()
	long := strings.Repeat("é", convert.MaxReason)
	for _, c := range []struct {
		id      string
		failed  error
		problem string
		calls   int
	}{
		{"", errors.New("no such host"), "", 0},
		{"b", nil, "", 1},
		{"b", writeError("f", errors.New("no space left")), "cannot write f: no space left", 1},
		{"b", errors.New(long), long[:convert.MaxReason], 1},
		{"b", errors.New("x" + long), "x" + long[:convert.MaxReason-2], 1}, // not half of a letter
	} {
		admin := &told{}
		if err := (&backupInfo{id: c.id}).confirm(stoppedCtx, admin, c.failed); err != nil || len(admin.said) != c.calls {
			t.Errorf("%v: %d calls (%v), want %d", c.failed, len(admin.said), err, c.calls)
			continue
		}
		if c.calls > 0 && (admin.said[0].GetBackupId() != c.id || admin.said[0].GetProblem() != c.problem) {
			t.Errorf("it says %v, want the problem %q", admin.said[0], c.problem)
		}
	}
}

// slowEnd serves a whole backup, and then takes a minute to end the call, as a coordinator does
// whose disk is slow: it notes the time of the backup.
type slowEnd struct {
	lessorv1.UnimplementedAdminServiceServer
	ended atomic.Bool
}

func (s *slowEnd) Backup(_ *lessorv1.BackupRequest, stream grpc.ServerStreamingServer[lessorv1.BackupResponse]) error {
	sum := sha256.Sum256(nil)
	err := errors.Join(
		stream.Send(&lessorv1.BackupResponse{Part: &lessorv1.BackupResponse_Begin{Begin: &lessorv1.BackupBegin{Format: store.Current().Format()}}}),
		stream.Send(&lessorv1.BackupResponse{Part: &lessorv1.BackupResponse_End{End: &lessorv1.BackupEnd{Sha256: sum[:]}}}))
	time.Sleep(time.Minute)
	s.ended.Store(true)
	return err
}

// A backup has ended for the coordinator, too, when the command has it, so that another one can
// follow at once.
func TestBackupEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis, server, service := bufconn.Listen(1<<20), grpc.NewServer(), &slowEnd{}
		lessorv1.RegisterAdminServiceServer(server, service)
		go func() { _ = server.Serve(lis) }()
		defer server.Stop()
		cl, err := dial("passthrough:///coordinator",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cl.Close() }()
		if err := receive(t.Context(), cl.admin, &bytes.Buffer{}, &backupInfo{}); err != nil || !service.ended.Load() {
			t.Errorf("the command has the backup (%v), and the call has ended: %v", err, service.ended.Load())
		}
	})
}
