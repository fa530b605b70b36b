package service_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/verify"
)

// serveOnDisk runs a test against a coordinator with a store on disk. A backup of that store is
// larger than the buffers between the coordinator and a reader, so that a backup stops if its
// reader does not read.
func serveOnDisk(t *testing.T, cfg coordinator.Config, test func(t *testing.T, r *wiretest.Rig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, err := boltstore.Open(dir, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		r := wiretest.NewWith(t, st, cfg)
		defer func() {
			r.Stop()
			if err := <-r.Served; err != nil {
				t.Error(err)
			}
			_ = r.Conn.Close()
		}()
		for range 2 {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = bytes.Repeat([]byte("payload "), 128<<10) })
		}
		test(t, r)
	})
}

// A11: a backup is a complete store that passes verify and has everything that was acknowledged
// before.
func TestBackup(t *testing.T) {
	t.Attr("rules", "A11")
	serveOnDisk(t, coordinator.Config{}, func(t *testing.T, r *wiretest.Rig) {
		r.Lease(t)
		stream, err := r.Admin.Backup(t.Context(), &lessorv1.BackupRequest{})
		if err != nil {
			t.Fatal(err)
		}
		begin, data, end, err := wiretest.ReceiveBackup(stream)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if end.GetBytes() != uint64(len(data)) || !bytes.Equal(end.GetSha256(), sum[:]) {
			t.Errorf("the last frame is %v, want the length and the checksum of %d bytes", end, len(data))
		}
		if begin.GetFormat() != store.Current().Format() || begin.GetEpoch() != 1 || !begin.GetTakenAt().AsTime().Equal(time.Now()) {
			t.Errorf("the first frame is %v, want format %d, epoch 1 and the time %v",
				begin, store.Current().Format(), time.Now())
		}
		if n := begin.GetStoreBytes(); n < uint64(len(data))/2 {
			t.Errorf("the first frame says that the store has %d bytes, and the backup has %d", n, len(data))
		}
		if got, want := verifyBackup(t, data), (verify.Summary{Epoch: 1, Tasks: 2, Leases: 1}); got != want {
			t.Errorf("the backup holds %+v, want %+v", got, want)
		}
	})
}

// verifyBackup checks that verify finds nothing wrong with a backup, and returns its summary.
func verifyBackup(t *testing.T, data []byte) (sum verify.Summary) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := boltstore.OpenReadOnly(file, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	err = st.View(func(r store.Reader) (err error) {
		sum, err = verify.Store(r, func(f verify.Finding) { t.Errorf("%v %x: %s", f.Keyspace, f.Key, f.Problem) })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sum.Records = 0
	return sum
}

// A backup ends if its reader stops reading, is too slow or goes away, because a backup keeps the
// store from reusing its pages. Then another backup may begin; until then a second one is refused.
func TestBackupEndsIfItsReaderStops(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  coordinator.Backup
		read func(t *testing.T, stream lessorv1.AdminService_BackupClient, leave context.CancelFunc)
		want codes.Code
	}{
		"stops reading": {
			coordinator.Backup{Stall: 5 * time.Second},
			func(*testing.T, lessorv1.AdminService_BackupClient, context.CancelFunc) { time.Sleep(6 * time.Second) },
			codes.Aborted,
		},
		"is slow": {
			coordinator.Backup{Stall: 5 * time.Second, Timeout: 8 * time.Second},
			func(t *testing.T, stream lessorv1.AdminService_BackupClient, _ context.CancelFunc) {
				for range 5 {
					time.Sleep(2 * time.Second)
					if _, err := stream.Recv(); err != nil {
						break // the error is checked below
					}
				}
			}, codes.Aborted,
		},
		"goes away": {
			coordinator.Backup{},
			func(_ *testing.T, _ lessorv1.AdminService_BackupClient, leave context.CancelFunc) { leave() }, codes.Canceled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			serveOnDisk(t, coordinator.Config{Backup: tt.cfg}, func(t *testing.T, r *wiretest.Rig) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				stream, err := r.Admin.Backup(ctx, &lessorv1.BackupRequest{})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if err := r.TakeBackup(t); status.Code(err) != codes.ResourceExhausted || refusal.CodeOf(err) != refusal.CodeBackupBusy {
					t.Errorf("a second backup at the same time: %v, want RESOURCE_EXHAUSTED and %s", err, refusal.CodeBackupBusy)
				}
				tt.read(t, stream, leave)
				synctest.Wait()
				if err := r.TakeBackup(t); err != nil {
					t.Errorf("another backup after that: %v", err)
				}
				if _, _, _, err := wiretest.ReceiveBackup(stream); status.Code(err) != tt.want {
					t.Errorf("the first backup ended with %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// During a backup the store cannot reuse its pages. If it grows while the disk is full, the backup
// ends, so that the disk reserve is left for verdicts. If it need not grow, the backup goes on.
func TestBackupEndsWhenTheDiskFills(t *testing.T) {
	var full atomic.Bool
	serveOnDisk(t, coordinator.Config{DiskFull: full.Load}, func(t *testing.T, r *wiretest.Rig) {
		stream, err := r.Admin.Backup(t.Context(), &lessorv1.BackupRequest{})
		if err != nil {
			t.Fatal(err)
		}
		full.Store(true)
		time.Sleep(10 * service.BackupDiskCheck)
		if err := r.TakeBackup(t); refusal.CodeOf(err) != refusal.CodeBackupBusy {
			t.Errorf("after a second on a full disk, another backup ends with %v; want %s, because the first one goes on", err, refusal.CodeBackupBusy)
		}
		full.Store(false)
		for range 20 {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) })
		}
		full.Store(true)
		time.Sleep(2 * service.BackupDiskCheck)
		synctest.Wait()
		if err := r.TakeBackup(t); err != nil {
			t.Errorf("another backup after that: %v", err)
		}
		if _, _, end, err := wiretest.ReceiveBackup(stream); end != nil || status.Code(err) != codes.ResourceExhausted || refusal.CodeOf(err) != refusal.CodeDiskFull {
			t.Errorf("the backup ended with %v, %v; want RESOURCE_EXHAUSTED and %s", end, err, refusal.CodeDiskFull)
		}
	})
}

// A11: a backup that lacks something has no last frame: not if the store cannot be read to its end,
// and not if a frame could not be sent. Otherwise the checksum of the last frame would say that the
// backup is complete.
func TestIncompleteBackupHasNoEnd(t *testing.T) {
	t.Attr("rules", "A11")
	t.Run("the store cannot be read", func(t *testing.T) {
		wiretest.Serve(t, wiretest.ShortStore{Store: memstore.New()}, func(t *testing.T, r *wiretest.Rig) {
			stream, err := r.Admin.Backup(t.Context(), &lessorv1.BackupRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, end, err := wiretest.ReceiveBackup(stream); end != nil || status.Code(err) != codes.Internal {
				t.Errorf("the backup ended with %v, %v, want INTERNAL", end, err)
			}
		})
	})
	t.Run("a frame is not sent", func(t *testing.T) {
		wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
			for _, last := range []int{1, 2, 3} { // begin, data, end
				lost, sent := errors.New("not sent"), 0
				err := r.Services.CopyTo(t.Context(), time.Second, func(*lessorv1.BackupResponse) error {
					if sent++; sent == last {
						return lost
					}
					return nil
				})
				if !errors.Is(err, lost) || sent != last {
					t.Errorf("frame %d is lost: %v after %d frames, want the error of that frame, and no frame after it", last, err, sent)
				}
			}
		})
	})
}

// A coordinator that stops ends a running backup, and does not wait for its reader.
func TestStopEndsABackup(t *testing.T) {
	serveOnDisk(t, coordinator.Config{}, func(t *testing.T, r *wiretest.Rig) {
		stream, err := r.Admin.Backup(t.Context(), &lessorv1.BackupRequest{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.Stop()
		synctest.Wait() // otherwise the rest might be sent before the coordinator sees that it shall stop
		if _, _, _, err := wiretest.ReceiveBackup(stream); status.Code(err) != codes.Unavailable {
			t.Errorf("the backup ended with %v, want UNAVAILABLE", err)
		}
	})
}

// X2: a backup contains the data of all tenants, so only operators of the host tenant may take it;
// nobody may if there is none.
func TestWhoMayTakeABackup(t *testing.T) {
	t.Attr("rules", "X2")
	for _, host := range []string{"host", ""} {
		refused := &refusal.HostError{What: "Backup", NoHost: host == ""}
		wiretest.ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}, HostTenant: host}, func(t *testing.T, r *wiretest.Rig) {
			for _, tenant := range []string{"host", "acme", gate.DefaultTenant} {
				token, _ := r.Issue(t, tenant, auth.Operator)
				stream, err := r.Admin.Backup(wiretest.WithToken(t.Context(), token), &lessorv1.BackupRequest{})
				if err == nil {
					_, _, _, err = wiretest.ReceiveBackup(stream)
				}
				want := codes.PermissionDenied
				if tenant == host {
					want = codes.OK
				}
				if status.Code(err) != want || want != codes.OK && (refusal.CodeOf(err) != refusal.CodeForbidden || status.Convert(err).Message() != refused.Error()) {
					t.Errorf("an operator of tenant %q, with the host tenant %q: %v, want %v", tenant, host, err, want)
				}
			}
		})
	}
}
