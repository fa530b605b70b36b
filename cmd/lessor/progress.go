package main

import (
	"maps"
	"slices"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// progressText returns the progress and the metrics of an attempt in words.
func progressText(p *lessorv1.Progress) string {
	text := words.Percent(p.GetFraction())
	for _, word := range []string{p.GetStage(), p.GetMessage()} {
		if word != "" {
			text += " " + word
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.GetMetrics())) {
		text += " " + name + "=" + words.Number(p.GetMetrics()[name])
	}
	return text
}

// shownLines is how many of the last output lines of an attempt are shown; --json has all that the
// coordinator keeps.
const shownLines = 20

// addFeedback shows the last progress and output of the present attempt, or of the last attempt
// that had any, and then of which.
func (d details) addFeedback(t *lessorv1.Task) {
	p := t.GetProgress()
	of := words.OfAttempt(t)
	if of != "" {
		of += ": "
	}
	if p.GetFraction() != 0 || p.GetStage() != "" || p.GetMessage() != "" || len(p.GetMetrics()) > 0 {
		d.add("progress", of+progressText(p))
	}
	lines := printedLines(t)
	if stack := stackOf(t); stack != "" { // it has the end of what a command said; what is not from there stays
		lines = slices.DeleteFunc(lines,
			func(line string) bool { return saysLine(stack, strings.TrimPrefix(line, "stderr: ")) })
	}
	if len(lines) > 0 && of != "" {
		lines = append([]string{strings.TrimSpace(of)}, lines...)
	}
	d.add("last lines", strings.Join(lines, "\n"))
}

// stackOf returns the stack of an error, or "" if it says nothing beyond the message and the last
// lines: the stack of a command is the end of what it wrote to standard error.
func stackOf(t *lessorv1.Task) string {
	stack := t.GetError().GetStackTrace()
	shown := t.GetError().GetMessage()
	for _, line := range printedLines(t) {
		shown += "\n" + strings.TrimPrefix(line, "stderr: ")
	}
	for line := range strings.Lines(stack) {
		line = strings.TrimRight(line, "\n")
		if strings.TrimSpace(line) != "" && !saysLine(shown, line) &&
			!strings.HasSuffix(t.GetError().GetMessage(), ": "+strings.TrimSpace(line)) {
			return stack
		}
	}
	return ""
}

// saysLine reports whether a text has a line.
func saysLine(text, line string) bool { return strings.Contains("\n"+text+"\n", "\n"+line+"\n") }

// printedLines returns the last lines that an attempt has printed.
func printedLines(t *lessorv1.Task) []string {
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
	return lines[max(0, len(lines)-shownLines):]
}
