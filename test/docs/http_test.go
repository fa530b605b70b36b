//go:build faults

package docs_test

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/test/harness"
)

const httpPage = "../../docs/http.md"

func TestMain(m *testing.M) { harness.Main(m) }

// The commands of docs/http.md are run by bash, with curl and a real coordinator, and every answer
// must be as the page shows it.
func TestHTTPPageMatchesTheCoordinator(t *testing.T) {
	t.Attr("rules", "H1 H2")
	c := &curlSession{t: t}
	for _, b := range readPage(t, httpPage) {
		c.block = b
		switch b.kind {
		case "heading":
			c.checkAllShown()
			c.matcher = matcher{variables: map[string]string{}}
		case "sh":
			c.checkAllShown()
			c.runCommands()
		case "json":
			c.compareAnswers(c.output)
		case "text":
			c.compareEvents()
		default:
			c.fail("the test does not know blocks of %q", b.kind)
		}
	}
	c.checkAllShown()
}

// curlSession executes the blocks, and keeps what they print until the page shows it.
type curlSession struct {
	t       *testing.T
	addr    string // where the coordinator listens
	prelude string // functions of the shell that the page defines
	block   block
	matcher matcher
	output  string
}

// pageAddr is where the coordinator of the page listens.
const pageAddr = "127.0.0.1:7421"

func (c *curlSession) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf(httpPage+":"+strconv.Itoa(c.block.line)+": "+format, args...)
}

func (c *curlSession) check(err error) {
	c.t.Helper()
	if err != nil {
		c.fail("%v\n%s", err, c.output)
	}
}

func (c *curlSession) checkAllShown() {
	c.t.Helper()
	if c.output != "" {
		c.fail("the block above has an answer that the page does not show: %s", c.output)
	}
}

func (c *curlSession) runCommands() {
	switch text := c.block.text; {
	case strings.HasPrefix(text, "lessor serve"):
		c.addr = c.serve()
	case strings.HasPrefix(text, "say()"):
		c.prelude = text
	default:
		c.output = c.run(text)
	}
}

// serve starts the coordinator on a free port.
func (c *curlSession) serve() string {
	at := make(chan string, 1)
	harness.Start(c.t, harness.Command{
		Args: []string{"serve", "--json", "--data", c.t.TempDir(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"},
		Stdout: harness.Lines(func(line string) {
			var listens struct{ HTTP string }
			_ = json.Unmarshal([]byte(line), &listens) // if it fails, the address is empty, and curl reports that
			at <- listens.HTTP
		}),
	})
	select {
	case addr := <-at:
		return addr
	case <-time.After(harness.Patience):
		c.fail("the coordinator did not start")
		return ""
	}
}

// run executes a block. The page's variables are environment variables of the shell.
func (c *curlSession) run(text string) string {
	cmd := exec.CommandContext(c.t.Context(), "bash", "-eu", "-c", c.prelude+strings.ReplaceAll(text, pageAddr, c.addr))
	for name, value := range c.matcher.variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Environ(), cmd.Env...)
	printed, err := cmd.Output()
	if err != nil {
		c.fail("%v", err)
	}
	return strings.ReplaceAll(string(printed), c.addr, pageAddr)
}

// compareAnswers compares JSON documents.
func (c *curlSession) compareAnswers(output string) {
	want, err := readJSON(c.block.text)
	c.check(err)
	got, err := readJSON(output)
	c.check(err)
	if len(want) != len(got) {
		c.fail("there are %d answers, the page shows %d: %s", len(got), len(want), output)
	}
	for i := range want {
		c.check(c.matcher.match("answer", want[i], got[i]))
	}
	c.output = ""
}

// compareEvents compares server-sent events: the data as documents, the rest line by line. It drops
// comments, which the coordinator sends after a quiet second, as on a machine that stood still.
func (c *curlSession) compareEvents() {
	want, got := strings.Split(c.block.text, "\n"), strings.Split(strings.ReplaceAll(c.output, ": \n\n", ""), "\n")
	if len(want) != len(got) {
		c.fail("there are %d lines, the page shows %d: %s", len(got), len(want), c.output)
	}
	for i := range want {
		shown, isData := strings.CutPrefix(want[i], "data: ")
		if !isData {
			if want[i] != got[i] {
				c.fail("the line is %q, the page shows %q", got[i], want[i])
			}
			continue
		}
		a, err := readJSON(shown)
		c.check(err)
		b, err := readJSON(strings.TrimPrefix(got[i], "data: "))
		c.check(err)
		c.check(c.matcher.match("event", a[0], b[0]))
	}
	c.output = ""
}
