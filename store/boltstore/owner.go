package boltstore

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/lessor-dev/lessor/store"
)

// owner is what the process that has the store open tells of itself in a file beside it. The lock on the store decides
// who owns it; this only says whom to ask, and may be left over from a crash.
type owner struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// own writes this process's owner file. It must hold the lock.
func own(dir string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	text, err := json.Marshal(owner{PID: os.Getpid(), Host: host, Since: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ownerName), append(text, '\n'), 0o600)
}

// disown removes the owner file. One that stays is replaced by the next owner.
func disown(dir string) { _ = os.Remove(filepath.Join(dir, ownerName)) }

// inUse describes who holds the lock, as far as the owner file tells.
func inUse(dir string) error {
	var o owner
	text, err := os.ReadFile(filepath.Join(dir, ownerName))
	if err != nil || json.Unmarshal(text, &o) != nil {
		o = owner{}
	}
	return &store.InUseError{Dir: dir, PID: o.PID, Host: o.Host, Since: o.Since}
}
