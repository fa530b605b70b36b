package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/store"
)

const hintDamaged = "keep it; lessor verify lists what is damaged; restore a backup, or make a new store of everything that can be read with lessor salvage"

const (
	hintOpenFiles    = "raise the limit of open files: ulimit -n, or LimitNOFILE of systemd"
	hintAddressSpace = "raise the limit of address space to at least 4 GiB more than the store has: ulimit -v, or LimitAS of systemd"
)

// tooManyFiles reports whether the process or the machine may not open another file or socket.
func tooManyFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// noSpace reports whether the disk or the quota of the user is used up.
func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// storeError returns the error for a store that cannot be opened or made. A command that does not
// make a store reports a missing store itself.
func storeError(dir string, err error) error {
	var (
		inUse   *store.InUseError
		newer   *store.NewerFormatError
		damaged *store.DamagedError
		corrupt *store.CorruptError
		half    *store.UnfinishedError
		full    *store.NotEmptyError
		lost    *store.LostError
		torn    *store.TornError
		copied  *store.StandbyError
		other   *store.NotStandbyError
		none    *store.NoCopyError
		told    *failure
	)
	switch {
	case errors.As(err, &told):
		return told
	case errors.As(err, &copied):
		return fail(exitCannotStart, fmt.Sprintf(`if the old coordinator has stopped for good, make the copy a store with "lessor standby promote %s"; otherwise name another directory`, dir), "%v", copied)
	case errors.As(err, &other):
		return fail(exitCannotStart, "name the --data directory of lessor standby run; a store needs no promotion: lessor serve", "%v", other)
	case errors.As(err, &none):
		return fail(exitCannotStart, "promote another standby, or restore a backup; if the coordinator still runs, wait until the copy is complete", "%v", none)
	case errors.As(err, &half) && half.Store != "":
		return fail(exitCannotStart, fmt.Sprintf("if %s is the store to serve and no restore, compaction or salvage runs, remove %s; otherwise name an empty directory",
			filepath.Join(half.Dir, half.Store), filepath.Join(half.Dir, half.Name)), "%v", half)
	case errors.As(err, &half):
		return fail(exitCannotStart, "run lessor restore, lessor compact --to or lessor salvage again; it starts from the beginning", "%v", half)
	case errors.As(err, &full):
		return fail(exitCannotStart, "name an empty directory; keep an old store until the new one serves", "%v", full)
	case errors.As(err, &lost):
		hint := "put " + lost.File + " back, or restore a backup into another directory; remove " + strings.Join(lost.Left, " and ") + " to begin with an empty store"
		return fail(exitCannotStart, hint, "%v", lost)
	case errors.As(err, &inUse):
		return fail(exitCannotStart, "only one process can use a data directory; stop the other one or choose another directory", "%w", inUse)
	case errors.As(err, &newer):
		return fail(exitCannotStart, "it was not changed; start the version of lessor that wrote it, or a newer one", "%v", newer)
	case errors.As(err, &torn):
		return fail(exitCannotStart, "a loss of power can cut off a commit, which was then not acknowledged: lessor serve takes it back; start it on the directory, stop it, then verify again", "%v", err)
	case errors.As(err, &damaged): // not err: nobody waits for a commit
		return fail(exitCannotStart, hintDamaged, "%v", damaged)
	case errors.As(err, &corrupt):
		return fail(exitCannotStart, hintDamaged, "%v", corrupt)
	case errors.Is(err, fs.ErrNotExist):
		return fail(exitCannotStart, "name a directory that can be created; a symbolic link must lead to an existing directory", "cannot create a store in %s: %v", dir, syscall.ENOENT)
	case errors.Is(err, syscall.ENOTDIR):
		return fail(exitCannotStart, "name a directory; it is created if it is missing",
			"data directory %s is not a directory, or lies below a file", dir)
	case noSpace(err):
		return fail(exitCannotStart, "free space on that disk, or raise the quota of the user",
			"no space left on the disk of data directory %s", dir)
	case errors.Is(err, fs.ErrPermission):
		return fail(exitCannotStart, "the data directory and its files must belong to the user who runs lessor", "no permission for data directory %s", dir)
	case errors.Is(err, syscall.EROFS):
		return fail(exitCannotStart, "name a directory that can be written",
			"data directory %s is on a read-only file system", dir)
	case tooManyFiles(err):
		return fail(exitCannotStart, hintOpenFiles, "cannot use data directory %s: %v", dir, err)
	case errors.Is(err, syscall.ENOMEM):
		return fail(exitCannotStart, hintAddressSpace, "cannot map the store in %s: %v", dir, syscall.ENOMEM)
	}
	return fail(exitCannotStart, "", "cannot use data directory %s: %v", dir, err)
}

// startError returns the error for a coordinator that cannot be made although the settings are
// valid. A store in which damage is met has failed, as after a commit, but nothing was served yet.
func startError(dir string, err error) error {
	if errors.As(err, new(*store.CommitError)) && !isDamage(err) {
		return storeFailed(err)
	}
	return storeError(dir, err)
}

// storeFailed returns the error of a process that ends because a commit failed, so that it does not
// know any more what its store holds, or because it met damage.
func storeFailed(err error) error {
	if isDamage(err) {
		return fail(exitStore, hintDamaged, "%v", err)
	}
	hint := "acknowledged changes are safe, others may be lost: check the disk, then start again"
	if noSpace(err) {
		hint = "acknowledged changes are safe, others may be lost: free space on that disk, or raise the quota of the user, then start again"
	}
	return fail(exitStore, hint, "%v", err)
}

func isDamage(err error) bool {
	return errors.As(err, new(*store.DamagedError)) || errors.As(err, new(*store.CorruptError))
}

// serveError returns the error with which serving ended, or nil if it was stopped.
func serveError(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, engine.ErrStore):
		return storeFailed(err)
	}
	return err
}
