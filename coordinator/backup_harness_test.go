package coordinator

import (
	"errors"
	"io"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// receiveBackup reads a backup to its end.
func receiveBackup(stream lessorv1.AdminService_BackupClient) (begin *lessorv1.BackupBegin, data []byte, end *lessorv1.BackupEnd, err error) {
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

func (r *rig) takeBackup(t *testing.T) error {
	t.Helper()
	stream, err := r.admin.Backup(t.Context(), &lessorv1.BackupRequest{})
	if err == nil {
		_, _, _, err = receiveBackup(stream)
	}
	return err
}

// shortStore is a store whose snapshots end with an error after a few bytes, as if the disk could not be read any further.
type shortStore struct{ *memstore.Store }

func (shortStore) Snapshot(w io.Writer) (int64, error) {
	n, _ := w.Write([]byte("the first page"))
	return int64(n), errors.New("EIO")
}
