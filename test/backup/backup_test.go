//go:build faults

package backup

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/test/harness"
)

// lessor runs a command until it ends.
func lessor(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	p := harness.Start(t, harness.Command{Args: args, Stdout: &out})
	code = p.Wait()
	return code, out.String() + p.Stderr()
}

func wantExit(t *testing.T, code int, args ...string) {
	t.Helper()
	if got, output := lessor(t, args...); got != code {
		t.Fatalf("%v: exit code %d, want %d\n%s", args, got, code, output)
	}
}

// eventually waits until happened returns true.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(harness.Patience); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("this did not happen within %v: %s", harness.Patience, what)
		}
	}
}

// TestUnderLoad: a backup that is taken while clients submit passes verify. It has the first tasks
// of each client without a gap, among them all that were acknowledged before the backup began. Its
// restored store is served, in a new epoch.
func TestUnderLoad(t *testing.T) {
	const clients, backups = 4, 3
	c := harness.NewCoordinator(t, t.TempDir())
	c.Start()
	var all []*client
	for i := range clients {
		all = append(all, startClient(t, c.Addr(), fmt.Sprintf("client-%d", i)))
	}
	during := int64(0)
	var file string
	for i := range backups {
		for _, cl := range all {
			from := cl.last.Load()
			eventually(t, cl.name+" goes on", func() bool { return cl.last.Load() > from+50 })
		}
		before := map[string]int64{}
		for _, cl := range all {
			before[cl.name] = cl.last.Load()
		}
		file = filepath.Join(t.TempDir(), strconv.Itoa(i))
		wantExit(t, 0, "backup", "--addr", c.Addr(), file)
		wantExit(t, 0, "verify", file)
		held := prefixes(t, file)
		for name, acknowledged := range before {
			if held[name] < acknowledged {
				t.Errorf("the backup has the first %d tasks of %s; %d were acknowledged before it",
					held[name], name, acknowledged)
			}
			during += held[name] - acknowledged
		}
	}
	c.Kill()
	dir := filepath.Join(t.TempDir(), "restored")
	wantExit(t, 0, "restore", file, "--data", dir)
	restored := harness.NewCoordinator(t, dir)
	restored.Start()
	status, err := lessorv1.NewAdminServiceClient(restored.Conn()).GetStatus(t.Context(), &lessorv1.GetStatusRequest{})
	if err != nil || status.GetEpoch() < 80_000_000 { // epochs of restores are seconds since 2024
		t.Errorf("after the restore: %v, %v; want a new epoch", status, err)
	}
	restored.Stop()
	restored.Verify()
	t.Logf("%d backups under load, with %d tasks that were submitted while they were taken", backups, during)
}

// prefixes counts the tasks of each queue in a backup, and checks that their keys are 1, 2, 3 and
// so on.
func prefixes(t *testing.T, file string) map[string]int64 {
	t.Helper()
	st, err := boltstore.OpenReadOnly(file, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	counts := map[string]int64{}
	err = st.View(func(r store.Reader) error {
		return records.Tasks(r, 1, "", 0, func(task *lease.Task) bool {
			counts[task.Spec.Queue]++
			if n := counts[task.Spec.Queue]; task.Spec.TaskKey != strconv.FormatInt(n, 10) {
				t.Errorf("task %d of %s has key %s: one is missing, or out of order", n, task.Spec.Queue, task.Spec.TaskKey)
			}
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// startLargeStore starts a coordinator with a store of 24 MiB. Such a backup does not fit into the
// buffers between the coordinator and a reader that stands still.
func startLargeStore(t *testing.T, args ...string) (c *harness.Coordinator, dir string) {
	t.Helper()
	dir = t.TempDir()
	c = harness.NewCoordinator(t, dir)
	c.Start(args...)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	tasks := lessorv1.NewTaskServiceClient(c.Conn())
	for range 24 {
		_, err := tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q", Payload: make([]byte, 1<<20)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return c, dir
}

// pausedReader starts a backup command, and pauses it when it has received a part, unless it has
// ended before.
func pausedReader(t *testing.T, addr, file string) *harness.Process {
	t.Helper()
	p := harness.Start(t, harness.Command{Args: []string{"backup", "--addr", addr, file}})
	eventually(t, "a part of the backup is there, or the end", func() bool {
		begun := partials(t, file)
		return hasEnded(p) || len(begun) > 0 && sizeOf(begun[0]) > 0
	})
	p.Pause()
	return p
}

func partials(t *testing.T, file string) []string {
	t.Helper()
	names, err := filepath.Glob(file + ".partial-*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func sizeOf(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}

// TestReaderKilled: when the reader of a backup is killed in the middle, the coordinator can give
// another backup. The killed reader leaves no file with the name of the backup.
func TestReaderKilled(t *testing.T) {
	c, _ := startLargeStore(t)
	hits, tries := 0, 0
	for ; hits < 2 && tries < 20; tries++ {
		file := filepath.Join(t.TempDir(), "backup")
		p := pausedReader(t, c.Addr(), file)
		p.End()
		if sizeOf(file) > 0 { // it ended before the kill
			wantExit(t, 0, "verify", file)
			continue
		}
		hits++
		eventually(t, "another backup begins", func() bool {
			code, _ := lessor(t, "backup", "--addr", c.Addr(), "--force", file)
			return code == 0
		})
		wantExit(t, 0, "verify", file)
	}
	c.Stop()
	t.Logf("%d of %d readers were killed in the middle", hits, tries)
	if hits == 0 {
		t.Error("no kill hit a backup in progress: the test shows nothing")
	}
}

// TestReaderStandsStill: a reader that stands still loses its backup after --backup-stall, and
// another reader gets one meanwhile.
func TestReaderStandsStill(t *testing.T) {
	c, _ := startLargeStore(t, "--backup-stall", "1s")
	hits, tries := 0, 0
	for ; hits == 0 && tries < 20; tries++ {
		file := filepath.Join(t.TempDir(), "still")
		p := pausedReader(t, c.Addr(), file)
		eventually(t, "another backup begins", func() bool {
			code, _ := lessor(t, "backup", "--addr", c.Addr(), "--force", file+".other")
			return code == 0
		})
		p.Resume()
		code := p.Wait()
		if code == 0 && sizeOf(file) > 0 { // it had ended before the pause
			continue
		}
		hits++
		if code != 3 {
			t.Errorf("the reader ends with exit code %d, want 3\n%s", code, p.Stderr())
		}
		if left := partials(t, file); len(left) > 0 {
			t.Errorf("files left behind: %v, want none", left)
		}
	}
	c.Stop()
	t.Logf("%d of %d readers stood still in the middle", hits, tries)
	if hits == 0 {
		t.Error("no pause hit a backup in progress: the test shows nothing")
	}
}

// TestRestoreKilled: a restore that is killed leaves either the whole store, or something that
// verify refuses and from which the same command gets to its end.
func TestRestoreKilled(t *testing.T) {
	c, _ := startLargeStore(t)
	file := filepath.Join(t.TempDir(), "backup")
	wantExit(t, 0, "backup", "--addr", c.Addr(), file)
	c.Stop()
	const kills = 5
	hits := 0
	for i := range kills {
		into := filepath.Join(t.TempDir(), "restored")
		killAfter(t, time.Duration(i)*40*time.Millisecond, "restore", file, "--data", into)
		code, _ := lessor(t, "verify", into)
		if _, err := os.Stat(filepath.Join(into, "lessor.db")); err == nil {
			if code != 0 {
				t.Errorf("the restored store is there, and verify ends with exit code %d, want 0", code)
			}
		} else {
			hits++
			wantExit(t, 5, "verify", into)
			wantExit(t, 0, "restore", file, "--data", into)
		}
		wantExit(t, 0, "verify", into)
	}
	t.Logf("%d restores killed, %d before their end", kills, hits)
	if hits == 0 {
		t.Error("no kill hit a restore in progress: the test shows nothing")
	}
}

func killAfter(t *testing.T, d time.Duration, args ...string) {
	t.Helper()
	p := harness.Start(t, harness.Command{Args: args})
	select {
	case <-p.Ended():
	case <-time.After(d):
		p.End()
	}
}

// TestCompactionKilled: a compaction that is killed while it writes its copy leaves the store as it
// was, byte for byte. The next compaction removes the copy.
func TestCompactionKilled(t *testing.T) {
	c, dir := startLargeStore(t)
	c.Stop()
	was := contentOf(t, filepath.Join(dir, "lessor.db"))
	hits, tries := 0, 0
	for ; hits < 5 && tries < 30; tries++ {
		p := harness.Start(t, harness.Command{Args: []string{"compact", "--data", dir}})
		eventually(t, "a part of the copy is there, or the end", func() bool {
			copies := copiesIn(t, dir)
			return hasEnded(p) || len(copies) > 0 && sizeOf(copies[0]) > 0
		})
		select {
		case <-p.Ended():
		case <-time.After(time.Duration(tries%5) * 20 * time.Millisecond): // a little later each time
			p.End()
		}
		if len(copiesIn(t, dir)) == 0 { // the compaction had ended: the store is another file with the same content
			was = contentOf(t, filepath.Join(dir, "lessor.db"))
			continue
		}
		hits++
		if !bytes.Equal(was, contentOf(t, filepath.Join(dir, "lessor.db"))) {
			t.Error("the store has changed, want it as it was byte for byte")
		}
		wantExit(t, 0, "verify", dir)
	}
	wantExit(t, 0, "compact", "--data", dir)
	wantExit(t, 0, "verify", dir)
	if left := copiesIn(t, dir); len(left) > 0 {
		t.Errorf("files left behind: %v, want none", left)
	}
	t.Logf("%d of %d compactions were killed in the middle", hits, tries)
	if hits == 0 {
		t.Error("no kill hit a compaction in progress: the test shows nothing")
	}
}

func copiesIn(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "lessor.db.compact-*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func hasEnded(p *harness.Process) bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

func contentOf(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestDiskFull: a backup, a restore and a compaction that run out of disk space fail with an error
// and a hint, and change and leave nothing. A compaction from the full disk onto another one
// succeeds. When there is room again, the others succeed, too.
func TestDiskFull(t *testing.T) {
	disk := harness.NewDisk(t, 256)
	c, dir := startLargeStore(t)
	old, taken := filepath.Join(disk.Dir(), "old"), filepath.Join(disk.Dir(), "taken")
	if err := os.WriteFile(old, []byte("an older backup"), 0o600); err != nil {
		t.Fatal(err)
	}
	onDisk, restored := filepath.Join(disk.Dir(), "data"), filepath.Join(disk.Dir(), "restored")
	for _, dir := range []string{onDisk, restored} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	source := filepath.Join(t.TempDir(), "backup")
	wantExit(t, 0, "backup", "--addr", c.Addr(), source)
	elsewhere, compacted := filepath.Join(t.TempDir(), "elsewhere"), filepath.Join(disk.Dir(), "compacted")
	wantExit(t, 0, "restore", source, "--data", onDisk)
	wantExit(t, 0, "restore", source, "--data", elsewhere)
	store := contentOf(t, filepath.Join(onDisk, "lessor.db"))
	commands := [][]string{
		{"backup", "--addr", c.Addr(), taken},
		{"backup", "--addr", c.Addr(), "--force", old},
		{"restore", source, "--data", restored},
		{"compact", "--data", onDisk},
		{"compact", "--data", elsewhere, "--to", compacted},
	}

	filler := disk.Fill("filler", 4<<20)
	before := namesIn(t, disk.Dir())
	for _, args := range commands {
		var code int
		var output string
		eventually(t, "the coordinator has noticed the end of the backup before", func() bool {
			code, output = lessor(t, args...)
			return !strings.Contains(output, "another backup is under way")
		})
		if code != 5 || !regexp.MustCompile(`^error: .*(no space left|no room).*\nhint: .+\n$`).MatchString(output) {
			t.Errorf("%v: exit code %d, want 5, an error and a hint\n%s", args, code, output)
		}
		if after := namesIn(t, disk.Dir()); after != before {
			t.Errorf("%v: files: %s, want %s", args, after, before)
		}
	}
	if got := contentOf(t, old); string(got) != "an older backup" {
		t.Error("the older backup has changed")
	}
	offDisk := filepath.Join(t.TempDir(), "data")
	wantExit(t, 0, "compact", "--data", onDisk, "--to", offDisk)
	if !bytes.Equal(store, contentOf(t, filepath.Join(onDisk, "lessor.db"))) {
		t.Error("the store has changed, want it as it was byte for byte")
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for _, args := range commands[1:] {
		wantExit(t, 0, args...)
	}
	for _, file := range []string{old, restored, onDisk, offDisk, compacted} {
		wantExit(t, 0, "verify", file)
	}
	c.Stop()
	wantExit(t, 0, "verify", dir)
}

// namesIn lists all files below a directory.
func namesIn(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}
