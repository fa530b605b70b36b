package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// copyOwnerAndMode gives a new file the owner and the mode of a store: root may compact the store
// of another user, who must be able to open it afterwards.
func copyOwnerAndMode(of os.FileInfo, to *os.File) error {
	return errors.Join(chownAs(of, to.Chown), to.Chmod(of.Mode().Perm()))
}

// giveAway gives new directories the owner of a store, but only they may use them.
func giveAway(of os.FileInfo, dirs []string) error {
	for _, dir := range dirs {
		if err := chownAs(of, func(uid, gid int) error { return os.Chown(dir, uid, gid) }); err != nil {
			return err
		}
	}
	return nil
}

// chownAs calls chown with the owner of a file. Only root may give files away: if this process may
// not, that is no error.
func chownAs(info os.FileInfo, chown func(uid, gid int) error) error {
	of, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if err := chown(int(of.Uid), int(of.Gid)); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
