package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the top directory of the repository, relative to the directory in which the tests of this
// package run.
const root = "../.."

const module = "github.com/lessor-dev/lessor"

// filesNamed returns the paths, relative to root and with slashes, of all files below dir whose
// name ends in suffix. It leaves out hidden directories, build output and testdata.
func filesNamed(t *testing.T, dir, suffix string) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(root), dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && ignored(entry.Name()):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(path, suffix):
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("no file *%s below %s: does this test run in its own directory?", suffix, dir)
	}
	return found
}

func ignored(dir string) bool {
	hidden := strings.HasPrefix(dir, ".") && dir != "."
	return hidden || dir == "bin" || dir == "dist" || dir == "node_modules" || dir == "testdata"
}

// read returns the content of a file given by its path relative to root.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
