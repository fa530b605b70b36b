package wiretest

import (
	"errors"
	"io"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// ReceiveBackup reads a backup to its end.
func ReceiveBackup(
	stream lessorv1.AdminService_BackupClient,
) (begin *lessorv1.BackupBegin, data []byte, end *lessorv1.BackupEnd, err error) {
	for {
		m, err := stream.Recv()
		switch {
		case err != nil:
			return begin, data, end, err
		case m.GetBegin() != nil:
			begin = m.GetBegin()
		case m.GetEnd() != nil:
			return begin, data, m.GetEnd(), nil
		}
		data = append(data, m.GetData()...)
	}
}

// TakeBackup takes a backup, and returns the error with which it ends.
func (r *Rig) TakeBackup(t *testing.T) error {
	t.Helper()
	stream, err := r.Admin.Backup(t.Context(), &lessorv1.BackupRequest{})
	if err == nil {
		_, _, _, err = ReceiveBackup(stream)
	}
	return err
}

// BackUp takes a backup, and returns its id.
func (r *Rig) BackUp(t *testing.T) (id string) {
	t.Helper()
	stream, err := r.Admin.Backup(t.Context(), &lessorv1.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	begin, _, _, err := ReceiveBackup(stream)
	if err != nil {
		t.Fatal(err)
	}
	return begin.GetBackupId()
}

// ConfirmBackup says that a backup is kept, or what the problem is.
func (r *Rig) ConfirmBackup(t *testing.T, id, problem string) error {
	_, err := r.Admin.ConfirmBackup(t.Context(), &lessorv1.ConfirmBackupRequest{BackupId: id, Problem: problem})
	return err
}

// ShortStore is a store whose snapshots end with an error after a few bytes, as if the disk could
// not be read any further.
type ShortStore struct{ *memstore.Store }

// Snapshot implements store.Store.
func (ShortStore) Snapshot(w io.Writer) (int64, error) {
	n, _ := w.Write([]byte("the first page"))
	return int64(n), errors.New("EIO")
}
