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

// TestOrder: a commit asks the system for just what the images are built by: to make the file larger and to sync that, if it must; to write pages and one meta page, and to
// sync them; and only then to note that, to acknowledge it (A6), and to write anything of the next one, which has begun meanwhile. The first one after a start syncs its pages before it writes the meta page. A version of bbolt that does otherwise makes these tests worth nothing.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Close(); err != nil { // making the store is not what is looked at
		t.Fatal(err)
	}
	calls := calls(commitUnderStrace(t, dir, "pwrite64,ftruncate,fsync,fdatasync,write"))
	if !regexp.MustCompile(`^S+N(TS)?P+DMDN((TS)?P+MDN)+D$`).MatchString(strings.ReplaceAll(calls, "A", "")) { // an open and a close around the commits
		t.Errorf("calls to the system: %s", calls)
	}
	durable := -1 // the first note is that of the open
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

// commitUnderStrace commits to the store in dir, and returns what was asked of the system under these names.
func commitUnderStrace(t *testing.T, dir, names string) (log string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "log")
	under := harness.StraceInto(t, file, names)
	p := harness.Start(t, harness.Command{
		Path: under[0], Args: append(under[1:], harness.Self(t)), Env: []string{modeEnv + "=commit " + dir},
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

// TestNamesAreDurable: before anything is acknowledged, all names that lead to the store are durable: those of the directories that were made for it, and its own, also where the process that gave it was
// killed right after that. A sync of the file promises nothing about its names (A6).
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

// calls is a letter for each call on the store: T truncate, S sync, D sync of data, P, M and N writes of a page, of a meta page and of a note in one; and A for each line
// that was printed.
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

// kindOf looks at the place of a write, the last argument.
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
