package boltstore

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lessor-dev/lessor/store"
)

// owner is the content of the owner file beside the store. The process that has the store open
// writes it. The lock on the store decides which process that is; the owner file is only a hint for
// the operator. After a crash it remains.
type owner struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// writeOwner writes the owner file of this process. The caller holds the lock. If the file that a
// crash has left cannot be written, writeOwner replaces it: it may belong to another user, such as
// root, who was making a token.
func writeOwner(dir string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	text, err := json.Marshal(owner{PID: os.Getpid(), Host: host, Since: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	return writeOrReplace(filepath.Join(dir, ownerName), append(text, '\n'))
}

// writeOrReplace writes a small file beside the store that only its owner may read. It first
// removes what it cannot write. It does not follow a symbolic link: otherwise the user of the store
// could make root overwrite any file, when root makes a token.
func writeOrReplace(name string, text []byte) error {
	if writeNoFollow(name, text) == nil {
		return nil
	}
	_ = os.Remove(name)
	return writeNoFollow(name, text)
}

func writeNoFollow(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// removeOwner removes the owner file. If it remains, the next owner replaces it.
func removeOwner(dir string) { _ = os.Remove(filepath.Join(dir, ownerName)) }

// inUseError returns a *store.InUseError with what the owner file says about the holder of the
// lock.
func inUseError(dir string) error {
	var o owner
	text, err := os.ReadFile(filepath.Join(dir, ownerName))
	if err != nil || json.Unmarshal(text, &o) != nil {
		o = owner{}
	}
	return &store.InUseError{Dir: dir, PID: o.PID, Host: o.Host, Since: o.Since}
}
