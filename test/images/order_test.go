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
	dir, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	if err := open(t, dir).Close(); err != nil { // making the store is not what is looked at
		t.Fatal(err)
	}
	under := harness.StraceInto(t, log, "pwrite64,ftruncate,fsync,fdatasync,write")
	p := harness.Start(t, harness.Command{
		Path: under[0], Args: append(under[1:], harness.Self(t)), Env: []string{modeEnv + "=commit " + dir},
	})
	<-p.Ended()
	if code := p.Wait(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.Stderr())
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	calls := calls(string(text))
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
