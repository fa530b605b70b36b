package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/internal/durable"
)

// Options are the options of a run. Two runs with equal options and equal input are the same run.
type Options struct {
	// Command is the command line, quoted; see QuoteCommand.
	Command string `json:"command"`
	// Placeholder is what the line replaces in the command, quoted; empty is {}.
	Placeholder string `json:"placeholder,omitempty"`
	// Nulls is true if lines are separated by NUL instead of newline.
	Nulls bool `json:"nulls,omitempty"`
	// MaxAttempts is the number of failures after which a line has failed for good; 0 is the
	// coordinator's default.
	MaxAttempts uint32 `json:"max_attempts,omitempty"`
	// Timeout is the longest time of one attempt; 0 is no limit.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	// Addr is the coordinator; empty is an embedded one.
	Addr string `json:"addr,omitempty"`
	// Workspace of the tasks; empty is "default".
	Workspace string `json:"workspace,omitempty"`
	// Dir is the working directory, where commands run: lines and arguments may name files relative
	// to it. Empty: it is not known.
	Dir string `json:"dir,omitempty"`
	// Temporary is true if nobody will resume the run. It makes no other run.
	Temporary bool `json:"temporary,omitempty"`
}

// QuoteCommand returns a command line as text. Different command lines have different texts.
func QuoteCommand(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = arg
		if q := strconv.Quote(arg); arg == "" || q[1:len(q)-1] != arg || strings.ContainsAny(arg, " '$`*?~#&;|<>()") {
			quoted[i] = q
		}
	}
	return strings.Join(quoted, " ")
}

// manifest is the durable description of a run.
type manifest struct {
	Version int     `json:"version"`
	RunID   string  `json:"run_id"`
	Options Options `json:"options"`
	Input   Input   `json:"input"`
	// Submitted is true if every line was submitted.
	Submitted bool `json:"submitted"`
	// Epoch of the coordinator when the lines were submitted; see Config.Epoch. 0 if it is not
	// known.
	Epoch uint32 `json:"epoch,omitempty"`
	// Unordered is true if lines were submitted again, so the order of the tasks may not be that of
	// the lines.
	Unordered bool `json:"unordered,omitempty"`
}

// ManifestError means that run.json is damaged or of a newer version.
type ManifestError struct{ Path, Problem string }

func (e *ManifestError) Error() string { return e.Path + " " + e.Problem }

// manifestVersion is the only one so far.
const manifestVersion = 1

// readManifest returns the manifest at path, or nil if there is none.
func readManifest(path string) (*manifest, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m manifest
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields() // a newer version may have them, with a meaning that this version does not know
	if err := decoder.Decode(&m); err != nil {
		return nil, &ManifestError{Path: path, Problem: fmt.Sprintf("is damaged or of a newer version: %v", err)}
	}
	if m.Version != manifestVersion {
		return nil, &ManifestError{
			Path:    path,
			Problem: fmt.Sprintf("has version %d; this program knows version %d", m.Version, manifestVersion),
		}
	}
	return &m, nil
}

func (m *manifest) write(path string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(data, '\n'))
}

// changes says in words how the run in the data directory differs from the requested run. It
// returns nil if they are the same.
func (m *manifest) changes(opts Options, in Input) []string {
	var list []string
	differ := func(what string, before, now any) {
		if before != now {
			list = append(list, fmt.Sprintf("%s: %v before, %v now", what, orNotSet(before), orNotSet(now)))
		}
	}
	was := m.Options
	differ("the command", was.Command, opts.Command)
	differ("-I", was.Placeholder, opts.Placeholder)
	differ("--null", was.Nulls, opts.Nulls)
	differ("--max-attempts", was.MaxAttempts, opts.MaxAttempts)
	differ("--timeout", was.Timeout, opts.Timeout)
	differ("--addr", was.Addr, opts.Addr)
	differ("--workspace", was.Workspace, opts.Workspace)
	if !sameDir(was.Dir, opts.Dir) {
		differ("the working directory", was.Dir, opts.Dir)
	}
	if m.Input != in {
		list = append(list, fmt.Sprintf("the input: %v before, %v now", m.Input, in))
	}
	return list
}

// sameDir reports whether two paths lead to the same directory. One that is not known may be any.
func sameDir(a, b string) bool {
	if a == b || a == "" || b == "" {
		return true
	}
	before, err1 := os.Stat(a)
	now, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(before, now)
}

// orNotSet returns the value of an option. The zero of one that is not a switch means that the
// option is as if it was not set.
func orNotSet(value any) any {
	switch value {
	case "", time.Duration(0), uint32(0):
		return "not set"
	}
	return value
}

// String returns a short text, enough to see that two inputs differ.
func (in Input) String() string {
	const shown = 12
	return fmt.Sprintf("%s (sha256 %s…)", CountLines(in.Lines), in.SHA256[:min(shown, len(in.SHA256))])
}
