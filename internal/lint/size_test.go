package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxFileSize bounds the files of the repository, in bytes. What is larger is a build or a
// recording, and stays in every clone for ever.
const maxFileSize = 512 << 10

// No build output is committed by accident.
func TestFilesAreSmall(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	list.Dir = root
	tracked, err := list.Output()
	if err != nil {
		t.Skipf("git ls-files: %v: the sources are not in a clone", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(tracked), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, filepath.FromSlash(name)))
		if err == nil && info.Size() > maxFileSize { // an error: the file is removed, but not yet in the index
			t.Errorf("%s has %d bytes, want at most %d", name, info.Size(), maxFileSize)
		}
	}
}
