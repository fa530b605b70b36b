package main

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/worker"
)

// chunkText returns a chunk in words, and what its worker has dropped before it: lines with the
// name of the channel.
func chunkText(c *lessorv1.FeedbackChunk) string {
	var lines []string
	if dropped := dropped(c); dropped > 0 {
		lines = append(lines, fmt.Sprintf("dropped %s of %s", words.Bytes(dropped), c.GetChannel()))
	}
	text := c.GetText()
	if data := c.GetData(); data != nil {
		text = words.Bytes(uint64(len(data))) + " of data"
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		lines = append(lines, c.GetChannel()+": "+line)
	}
	return strings.Join(lines, "\n")
}

// dropped is how many bytes of the channel its worker has dropped right before the chunk, if it is
// one of the Go SDK.
func dropped(c *lessorv1.FeedbackChunk) uint64 {
	n, _ := strconv.ParseUint(c.GetMetadata()[worker.MetadataDropped], 10, 64)
	return n
}

// goesOn reports whether the last line of the text of a chunk goes on in the next chunk. Chunks of
// another type, such as application/json, have no lines.
func goesOn(c, next *lessorv1.FeedbackChunk) bool {
	isText := c.GetMimeType() == "" || strings.HasPrefix(c.GetMimeType(), "text/")
	return isText && next.GetMimeType() == c.GetMimeType() && c.GetText() != "" &&
		!strings.HasSuffix(c.GetText(), "\n") && next.GetText() != "" &&
		next.GetChannel() == c.GetChannel() && next.GetIndex() == c.GetIndex()+1 && dropped(next) == 0
}

// joinChunks returns two chunks as one, of which the first one goes on in the next.
func joinChunks(c, next *lessorv1.FeedbackChunk) *lessorv1.FeedbackChunk {
	both := proto.CloneOf(c)
	both.Index, both.Body = next.GetIndex(), &lessorv1.FeedbackChunk_Text{Text: c.GetText() + next.GetText()}
	return both
}

// cutLine cuts a chunk before the beginning of a line at its end. rest is nil if there is none,
// whole is nil if there is nothing else.
func cutLine(c *lessorv1.FeedbackChunk) (whole, rest *lessorv1.FeedbackChunk) {
	text := c.GetText()
	end := strings.LastIndexByte(text, '\n') + 1
	switch end {
	case len(text):
		return c, nil
	case 0:
		return nil, c
	}
	whole, rest = proto.CloneOf(c), proto.CloneOf(c)
	whole.Body, rest.Body = &lessorv1.FeedbackChunk_Text{Text: text[:end]},
		&lessorv1.FeedbackChunk_Text{Text: text[end:]}
	rest.Metadata = nil // what was dropped was dropped before the first line
	return whole, rest
}
