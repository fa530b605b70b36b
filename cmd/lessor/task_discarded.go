package main

import (
	"fmt"
	"io"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// addDiscarded shows the results that came too late, and which one was adopted.
func (d details) addDiscarded(t *lessorv1.Task) {
	if n := t.GetAdoptedAttempt(); n != 0 {
		d.add("adopted", fmt.Sprintf("the late result of attempt %d is the output", n))
	}
	for _, r := range t.GetDiscarded() {
		text := fmt.Sprintf("%s by worker %s at %s, attempt %d: %s",
			words.Bytes(uint64(r.GetSizeBytes())), r.GetWorkerId(), clock(r.GetAt()), r.GetAttempt(),
			words.Name(r.GetReason()))
		for _, artifact := range r.GetArtifacts() {
			text += "\n" + words.Artifact(artifact)
		}
		d.add("discarded", text)
	}
}

// writeDiscarded writes the output of a discarded result, which an attempt reported too late.
func writeDiscarded(w io.Writer, t *lessorv1.Task, attempt uint32) error {
	var kept []string
	for _, r := range t.GetDiscarded() {
		if r.GetAttempt() == attempt {
			return writeResult(w, fmt.Sprintf("the discarded result of attempt %d", attempt), r.GetOutput(),
				r.GetArtifacts())
		}
		kept = append(kept, fmt.Sprint(r.GetAttempt()))
	}
	hint := ""
	if len(kept) > 0 {
		hint = "attempts whose results are kept: " + strings.Join(kept, ", ")
	}
	return fail(exitFailed, hint, "%s has no discarded result of attempt %d", t.GetTaskId(), attempt)
}
