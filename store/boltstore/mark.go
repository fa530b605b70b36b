package boltstore

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// mark is the content of a file beside the store. It says that a check has read the whole store
// since the machine was booted, and found it sound. If a process is killed, the kernel still has
// what the process wrote; only a machine that goes down can lose pages. So a store with a good mark
// may serve while it is checked again. The mark is removed while that check runs; see opening.
type mark struct {
	Boot string `json:"boot"` // ID of this boot of the machine
	// The next three identify the file. If they differ, somebody has replaced the file since.
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Born   int64  `json:"born"` // time of creation, in ns since 1970
}

// hasGoodMark reports whether file has a good mark.
func hasGoodMark(file *os.File) bool {
	want, ok := markFor(file)
	if !ok {
		return false
	}
	text, err := os.ReadFile(markPath(file.Name()))
	var have mark
	return err == nil && json.Unmarshal(text, &have) == nil && have == want
}

// setMark marks a file that was checked. The mark need not be durable: without it, the next Open
// only takes longer.
func setMark(file *os.File) {
	m, ok := markFor(file)
	if !ok {
		return
	}
	if text, err := json.Marshal(m); err == nil {
		// the old one may be of another user, such as root, who made a token
		_ = writeOrReplace(markPath(file.Name()), append(text, '\n'))
	}
}

// unmark removes the mark of the store at path, so that the next Open checks the store before it
// serves.
func unmark(path string) { _ = os.Remove(markPath(path)) }

// markPath returns the path of the mark of the store at path.
func markPath(path string) string { return filepath.Join(filepath.Dir(path), markName) }
