package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/execworker"
	"github.com/lessor-dev/lessor/internal/runner"
	"github.com/lessor-dev/lessor/internal/words"
)

// runRecord is what lessor run --json adds to a task, as its field "line".
type runRecord struct {
	Number   int64   `json:"number"`              // from 1
	Text     *string `json:"text,omitempty"`      // nil: it is not UTF-8; the payload has it in base64
	ExitCode *int    `json:"exit_code,omitempty"` // nil: the last attempt did not end by itself
	Output   []byte  `json:"output,omitempty"`    // what the last attempt of a failed line has printed, in base64
	File     string  `json:"file,omitempty"`      // with that, if it is too long for the output of a task
	Deleted  bool    `json:"deleted,omitempty"`   // its task is gone, of which the object has only what was submitted
	// Seconds is from the grant of the last attempt to the end of the line; nil: it was not
	// granted.
	Seconds *float64 `json:"seconds,omitempty"`
}

// newRunRecord returns what is added to a task that has ended. If it has failed, the file failed
// has what its last attempt has printed; it need not exist.
func newRunRecord(t *lessorv1.Task, failed string) (runRecord, error) {
	r := runRecord{Number: runner.LineOf(t), Deleted: t.GetState() == lessorv1.TaskState_TASK_STATE_UNSPECIFIED}
	if line := t.GetSpec().GetPayload(); utf8.Valid(line) {
		r.Text = new(string(line))
	}
	switch code, exited := execworker.ExitCode(t.GetError().GetMessage()); {
	case t.GetState() == lessorv1.TaskState_TASK_STATE_COMPLETED:
		r.ExitCode = new(0)
	case exited && words.FailedByError(t):
		r.ExitCode = &code
	}
	for _, e := range t.GetHistory() {
		if e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED && e.GetAttempt() == t.GetAttempt() {
			r.Seconds = new(t.GetFinishedAt().AsTime().Sub(e.GetAt().AsTime()).Round(time.Millisecond).Seconds())
		}
	}
	if t.GetState() == lessorv1.TaskState_TASK_STATE_COMPLETED {
		return r, nil
	}
	switch info, err := os.Stat(failed); {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case err != nil:
		return r, err
	case info.Size() > execworker.DefaultInlineLimit:
		r.File, err = filepath.Abs(failed)
		return r, err
	}
	var err error
	r.Output, err = os.ReadFile(failed)
	return r, err
}

// printRecord writes a task that has ended, with what is added to it.
func printRecord(w io.Writer, t *lessorv1.Task, failed string) error {
	r, err := newRunRecord(t, failed)
	if err != nil {
		return err
	}
	var task, line bytes.Buffer
	if err := printJSON(&task, t); err != nil {
		return err
	}
	added := json.NewEncoder(&line)
	added.SetEscapeHTML(false)
	if err := added.Encode(r); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s,\"line\":%s}\n", bytes.TrimSuffix(task.Bytes(), []byte("}\n")),
		bytes.TrimSpace(line.Bytes()))
	return err
}
