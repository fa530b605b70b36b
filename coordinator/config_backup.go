package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Backup configures backups: copies of the whole store. During a backup the store cannot reuse the
// pages of the snapshot, so its file grows with every write. Therefore the duration of a backup is
// limited, and a backup ends when the disk is full.
type Backup struct {
	// Timeout is how long a backup may take. The minimum is 1 s; 0 means 1 h.
	Timeout time.Duration
	// Stall is how long the client of a backup, or a standby, may pause reading. The minimum is 1
	// s; 0 means 30 s.
	Stall time.Duration
}

const (
	defaultBackupTimeout = time.Hour
	defaultBackupStall   = 30 * time.Second
)

func (b *Backup) fill() {
	b.Timeout = cmp.Or(b.Timeout, defaultBackupTimeout)
	b.Stall = cmp.Or(b.Stall, defaultBackupStall)
}

func (b *Backup) validate() error {
	const least = time.Second
	var errs []error
	if b.Timeout < least {
		errs = append(errs, fmt.Errorf("the backup timeout is %v; it must be at least %v", b.Timeout, least))
	}
	if b.Stall < least {
		errs = append(errs, fmt.Errorf("the backup stall time is %v; it must be at least %v", b.Stall, least))
	}
	return errors.Join(errs...)
}
