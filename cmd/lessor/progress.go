package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// progressText returns the progress and the metrics of an attempt in words.
func progressText(p *lessorv1.Progress) string {
	text := fmt.Sprintf("%.0f %%", p.GetFraction()*100)
	for _, word := range []string{p.GetStage(), p.GetMessage()} {
		if word != "" {
			text += " " + word
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.GetMetrics())) {
		text += fmt.Sprintf(" %s=%.4g", name, p.GetMetrics()[name])
	}
	return text
}

// shownLines is how many of the last output lines of an attempt are shown; --json has all that the coordinator keeps.
const shownLines = 20

// addFeedback shows the last progress and output of the present attempt, or of the last attempt that had any.
func (d details) addFeedback(t *lessorv1.Task) {
	p := t.GetProgress()
	if p.GetFraction() != 0 || p.GetStage() != "" || p.GetMessage() != "" || len(p.GetMetrics()) > 0 {
		d.add("progress", progressText(p))
	}
	var chunks []*lessorv1.FeedbackChunk
	for _, c := range t.GetFeedback() {
		if last := len(chunks) - 1; last >= 0 && goesOn(chunks[last], c) {
			chunks[last] = joinChunks(chunks[last], c)
		} else {
			chunks = append(chunks, c)
		}
	}
	var lines []string
	for _, c := range chunks {
		lines = append(lines, strings.Split(chunkText(c), "\n")...)
	}
	d.add("last lines", strings.Join(lines[max(0, len(lines)-shownLines):], "\n"))
}
