//go:build faults && !race

package images

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/test/harness"
)

// TestOrder: the images of the other tests assume how a commit uses the file, and this test checks
// it. If the file must grow, it is enlarged and synced. The pages and one meta page are written and
// synced. Only then comes the note that they are durable, the acknowledgement (A6), and the first
// write of the next commit, which has begun meanwhile. The first commit after an open syncs its
// pages before it writes the meta page. If a new version of bbolt does otherwise, the images no
// longer show what a crash leaves.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Close(); err != nil { // the making of the store is not checked
		t.Fatal(err)
	}
	calls := calls(commitUnderStrace(t, dir, "pwrite64,ftruncate,fsync,fdatasync,write"))
	// The calls of the open come before the commits, and that of the close after them.
	if !regexp.MustCompile(`^S+N(TS)?P+DMDN((TS)?P+MDN)+D$`).MatchString(strings.ReplaceAll(calls, "A", "")) {
		t.Errorf("calls to the system: %s", calls)
	}
	durable := -1 // commits that are noted and not yet acknowledged; the first note is that of the open
	for i, call := range calls {
		switch call {
		case 'N':
			durable++
		case 'A':
			if durable--; durable < 0 {
				t.Fatalf("acknowledged before it is durable: %s", calls[:i+1])
			}
		}
	}
	commits, grown := strings.Count(calls, "A"), strings.Count(calls, "T")
	t.Logf("%d commits, %d of which made the file larger", commits, grown)
	if commits != 60 || grown == 0 {
		t.Errorf("%d commits, %d of which made the file larger; want 60, and some", commits, grown)
	}
}

// commitUnderStrace commits to the store in dir, and returns the log of the system calls with these
// names.
func commitUnderStrace(t *testing.T, dir, names string) (log string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "log")
	p := harness.Start(t, harness.Command{
		Path: harness.Self(t), Under: harness.StraceInto(t, file, names), Env: []string{modeEnv + "=commit " + dir},
	})
	<-p.Ended()
	if code := p.Wait(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.Stderr())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestNamesAreDurable: a sync of a file does not make its name durable. Before anything is
// acknowledged, the directories must be synced: those that were made for the store, and the one
// with its file, also if another process made the file and was killed right after that (A6).
func TestNamesAreDurable(t *testing.T) {
	outside := t.TempDir()
	made := filepath.Join(outside, "made")
	dir := filepath.Join(made, "data")
	acknowledged := `write\(1<`
	synced := func(dir string) string { return `fsync\(\d+<` + regexp.QuoteMeta(dir) + `>[ )]` }
	for _, start := range []struct {
		name string
		want []string // in this order
	}{
		{"the first", []string{synced(outside), synced(made), "linkat", synced(dir), acknowledged}},
		{"the next", []string{synced(dir), acknowledged}},
	} {
		log := commitUnderStrace(t, dir, "linkat,fsync,write")
		upToTheFirst, _, _ := strings.Cut(log, "write(1<")
		if want := strings.Join(start.want, "(?s:.*)"); !regexp.MustCompile(want).MatchString(upToTheFirst + "write(1<") {
			t.Errorf("%s start: want %s in\n%s", start.name, want, upToTheFirst)
		}
	}
}

// calls returns a letter for each system call on the store: T truncate, S sync, D sync of data; P,
// M and N writes of a page, of a meta page and of the note in one; and A for each line that was
// printed.
func calls(log string) string {
	var all strings.Builder
	call := regexp.MustCompile(`\b(\w+)\((\d+)<([^>]*)>(.*)`)
	for line := range strings.Lines(log) {
		m := call.FindStringSubmatch(line)
		switch {
		case m == nil:
		case m[1] == "write" && m[2] == "1":
			all.WriteByte('A')
		case !strings.HasSuffix(m[3], "/"+fileName):
		case m[1] == "pwrite64":
			all.WriteByte(kindOf(m[4]))
		default:
			all.WriteString(map[string]string{"ftruncate": "T", "fsync": "S", "fdatasync": "D"}[m[1]])
		}
	}
	return all.String()
}

// kindOf tells by the offset of a write, its last argument, what was written.
func kindOf(args string) byte {
	at := regexp.MustCompile(`, (\d+)\)? `).FindStringSubmatch(args + " ")
	var place int64
	if at == nil {
		return '?'
	}
	switch _, err := fmt.Sscan(at[1], &place); {
	case err != nil:
		return '?'
	case place >= 2*pageSize:
		return 'P'
	case place%pageSize == 0:
		return 'M'
	}
	return 'N'
}
