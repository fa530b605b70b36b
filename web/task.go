package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"unicode/utf8"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// task shows a task: why it is where it is, what it is, and what happened to it.
func (p *pages) task(r *http.Request) (view, error) {
	id := r.PathValue("task")
	got, err := p.tasks.GetTask(r.Context(), &lessorv1.GetTaskRequest{TaskId: id})
	if err != nil {
		return view{}, err
	}
	explained, err := p.tasks.ExplainTask(r.Context(), &lessorv1.ExplainTaskRequest{TaskId: id})
	if err != nil {
		return view{}, err
	}
	t := got.GetTask()
	return view{Title: "Task " + id, Template: "task", Workspace: t.GetSpec().GetWorkspaceId(), Live: true, Data: struct {
		Task      *lessorv1.Task
		Explain   explanation
		Ended     bool
		Adoptable bool
		Elsewhere bool
	}{t, explanation{explained, words.Final(t.GetState())}, words.Final(t.GetState()), slices.ContainsFunc(explained.GetFindings(), isLateResult), elsewhere(t)}}, nil
}

// isLateResult reports whether a finding says that a result can be adopted: one is kept, nobody
// holds the task, and its round has no outcome.
func isLateResult(f *lessorv1.Finding) bool {
	return f.GetCode() == lessorv1.FindingCode_FINDING_CODE_LATE_RESULT
}

// elsewhere reports whether the output of a task is not with the coordinator, which can only say
// where it is.
func elsewhere(t *lessorv1.Task) bool {
	return len(t.GetOutput()) == 0 && slices.ContainsFunc(t.GetArtifacts(),
		func(a *lessorv1.Artifact) bool { return !a.GetInline() })
}

// mostShown is how many bytes of a payload, an output or a checkpoint a page shows.
const mostShown = 8 << 10

// content is what a page shows of bytes.
type content struct {
	ID   string // of its element, by which page.js finds it again
	Text string
	Size string
	Cut  bool // Text is only the beginning
	Data bool // they are not text
}

// deepest is how far JSON may be nested to be indented: the indentation of a few KiB of brackets
// would take tens of MiB.
const deepest = 32

// contentOf prepares bytes. JSON is indented.
func contentOf(data []byte) content {
	c := content{Size: words.Bytes(uint64(len(data)))}
	if !utf8.Valid(data) {
		c.Data = true
		return c
	}
	if c.Cut = len(data) > mostShown; c.Cut {
		c.Text = string(bytes.ToValidUTF8(data[:mostShown], nil))
		return c
	}
	var indented bytes.Buffer
	if depth(data) <= deepest && json.Indent(&indented, data, "", "  ") == nil {
		data = indented.Bytes()
	}
	c.Text = string(data)
	return c
}

// depth returns how many brackets are open at most. Those in texts count, too.
func depth(data []byte) (most int) {
	open := 0
	for _, b := range data {
		switch b {
		case '[', '{':
			open++
			most = max(most, open)
		case ']', '}':
			open--
		}
	}
	return most
}

// printed returns what a page shows of something that a task printed.
func printed(c *lessorv1.FeedbackChunk) string {
	data := c.GetData()
	if !utf8.Valid(data) {
		return "(" + words.Bytes(uint64(len(data))) + " that are not text)\n"
	}
	return c.GetText() + string(data) // it has one of them
}
