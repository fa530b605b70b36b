package boltstore

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// mark says, in a file beside the store, that the whole store was read and found sound while the machine has been running. What a process wrote
// outlives it, for the kernel has it; only a machine that goes down can lose pages. So a store with a good mark may serve before it is checked again. It is
// taken away while that check runs; see opening.
type mark struct {
	Boot string `json:"boot"` // of the machine
	// These three are the file, or else it was put in its place since.
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Born   int64  `json:"born"` // in ns since 1970
}

// marked reports whether file has a good mark.
func marked(file *os.File) bool {
	want, ok := markFor(file)
	if !ok {
		return false
	}
	text, err := os.ReadFile(markOf(file.Name()))
	var have mark
	return err == nil && json.Unmarshal(text, &have) == nil && have == want
}

// setMark marks a file that was checked. It need not be durable: without it the next Open only takes longer.
func setMark(file *os.File) {
	m, ok := markFor(file)
	if !ok {
		return
	}
	if text, err := json.Marshal(m); err == nil {
		_ = os.WriteFile(markOf(file.Name()), append(text, '\n'), 0o600)
	}
}

// unmark lets the next Open of the store at path check it before anything else.
func unmark(path string) { _ = os.Remove(markOf(path)) }

func markOf(path string) string { return filepath.Join(filepath.Dir(path), markName) }
