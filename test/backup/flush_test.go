//go:build faults

package backup

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/test/harness"
)

// makers are the commands that make a store, which gets its name at the end. Each makes one in dir,
// from a backup, from the store in dir, or from the one beside the backup.
var makers = map[string]func(backup, dir string) []string{
	"restore": func(backup, dir string) []string { return []string{"restore", backup, "--data", dir} },
	"compact": func(_, dir string) []string { return []string{"compact", "--data", dir} },
	"compact-to": func(backup, dir string) []string {
		return []string{"compact", "--data", filepath.Dir(backup), "--to", dir}
	},
}

// smallBackup returns a backup with one task. It is in a directory with a store that has the same
// contents.
func smallBackup(t *testing.T) string {
	t.Helper()
	c := harness.NewCoordinator(t, t.TempDir())
	c.Start()
	wantExit(t, 0, "submit", "--addr", c.Addr(), "--queue", "q", "--payload", "kept")
	backup := filepath.Join(t.TempDir(), "backup")
	wantExit(t, 0, "backup", "--addr", c.Addr(), backup)
	c.Stop()
	if err := os.WriteFile(filepath.Join(filepath.Dir(backup), "lessor.db"), contentOf(t, backup), 0o600); err != nil {
		t.Fatal(err)
	}
	return backup
}

// dirFor returns a directory for a command: one with a store for compact, otherwise one that is
// missing.
func dirFor(t *testing.T, name, backup string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "made", "data")
	if name == "compact" {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "lessor.db"), contentOf(t, backup), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestStoreIsDurableBeforeItsName: a restore and a compaction sync all that they have written
// before the file gets the name of the store. Then they sync the directory, and only then tell of
// their success. A restore, and a compaction into another directory, have synced the directories
// before, in which they have made others. Otherwise a loss of power could leave a part of a store,
// or none, although the command had succeeded.
func TestStoreIsDurableBeforeItsName(t *testing.T) {
	for name, maker := range makers {
		t.Run(name, func(t *testing.T) {
			backup := smallBackup(t)
			dir := dirFor(t, name, backup)
			file := filepath.Join(t.TempDir(), "log")
			under := harness.StraceInto(t, file,
				"write,pwrite64,ftruncate,copy_file_range,fsync,fdatasync,rename,renameat,renameat2")
			p := harness.Start(t, harness.Command{Args: maker(backup, dir), Under: under, Stdout: new(strings.Builder)})
			if code := p.Wait(); code != 0 {
				t.Fatalf("exit code %d\n%s", code, p.Stderr())
			}
			calls := makerCalls(dir, string(contentOf(t, file)))
			want := map[string]string{
				"restore": `^dd(W+S+)+RDA$`, "compact": `^(W+S+)+RDA$`,
				"compact-to": `^dd(W+S+)+RDA$`,
			}[name]
			if !regexp.MustCompile(want).MatchString(calls) {
				t.Errorf("calls to the system: %s, want %s\n%s", calls, want, contentOf(t, file))
			}
		})
	}
}

// makerCalls returns a letter for each system call of a command that makes a store in dir: W a
// write to the new file, S a sync of it, R a rename, D a sync of dir, d a sync of a directory above
// it that is made or has a new name, and A what the command prints.
func makerCalls(dir, log string) string {
	var all strings.Builder
	made := filepath.Dir(dir)
	call := regexp.MustCompile(`\b(\w+)\((.*)`)
	for line := range strings.Lines(log) {
		m := call.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		sync := m[1] == "fsync" || m[1] == "fdatasync"
		switch name, args := m[1], m[2]; {
		case strings.HasPrefix(name, "rename"):
			all.WriteByte('R')
		case regexp.MustCompile(`lessor\.db\.(restoring|compact-)`).MatchString(args):
			all.WriteByte(map[bool]byte{true: 'S', false: 'W'}[sync])
		case sync && strings.Contains(args, "<"+dir+">"):
			all.WriteByte('D')
		case sync && (strings.Contains(args, "<"+made+">") || strings.Contains(args, "<"+filepath.Dir(made)+">")):
			all.WriteByte('d')
		case name == "write" && strings.HasPrefix(args, "1<"):
			all.WriteByte('A')
		}
	}
	return all.String()
}

// TestFlushOrLockFails: a restore, a compaction or the making of an empty store ends with an error
// if one of its syncs fails, or if the system refuses a lock. It leaves nothing, or the store that
// was there, or a whole new one. What has made directories removes them, too.
func TestFlushOrLockFails(t *testing.T) {
	backup := smallBackup(t)
	commands := maps.Clone(makers)
	commands["create"] = func(_, dir string) []string {
		return []string{
			"token", "create", "--data", dir, "--role", "operator", "--subject", "ann", "--out",
			filepath.Join(t.TempDir(), "token"),
		}
	}
	for name, command := range commands {
		for call, most := range map[string]int{"fsync": 6, "fdatasync": 3, "flock": 2} {
			t.Run(name+"/"+call, func(t *testing.T) {
				failed := 0
				for n := 1; n <= most; n++ {
					dir := dirFor(t, name, backup)
					file := filepath.Join(t.TempDir(), "log")
					// the n-th call of a thread
					under := append(harness.StraceInto(t, file, call), "-e", fmt.Sprintf("inject=%s:error=EIO:when=%d", call, n))
					p := harness.Start(t, harness.Command{Args: command(backup, dir), Under: under})
					code, want := p.Wait(), 0
					if bytes.Contains(contentOf(t, file), []byte("INJECTED")) {
						failed++
						want = 5
					}
					if code != want || code != 0 && !strings.Contains(p.Stderr(), "input/output error") {
						t.Errorf("call %d: exit code %d, want %d\n%s", n, code, want, p.Stderr())
					}
					made := filepath.Dir(dir)
					switch left := strings.ReplaceAll(namesIn(t, filepath.Dir(made)), made, ""); {
					case strings.HasSuffix(left, " /data /data/lessor.db"), strings.HasSuffix(left, " /data /data/lessor.db /data/lessor.db.checked"):
						wantExit(t, 0, "verify", dir)
					case (name == "restore" || name == "compact-to") && !strings.Contains(left, " "), name == "create" && !strings.Contains(left, "/data/"):
					default:
						t.Errorf("call %d: files: %s", n, left)
					}
				}
				if t.Logf("%d calls have failed", failed); failed == 0 {
					t.Error("none: the test shows nothing")
				}
			})
		}
	}
}
