package worker

import (
	"bytes"
	"maps"
	"strconv"
	"unicode/utf8"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// chunkOverhead is what a chunk costs beside its data, in bytes: many tiny ones are bounded as well.
const chunkOverhead = 64

// MetadataDropped is the metadata key under which a chunk says how many bytes of its channel were dropped right before it because the
// stream was slow.
const MetadataDropped = "dropped_bytes"

// Chunk is a piece of output that is passed on as it is: a frame of a picture, a token of a language model.
type Chunk struct {
	// Channel is the stream that it belongs to, for example "llm".
	Channel string
	// MIMEType is what it is. Empty: text/plain where Data is UTF-8, else application/octet-stream.
	MIMEType string
	// Data is the piece; at most 64 KiB, and no more than Config.OutputBuffer.
	Data []byte
	// Metadata is free text: at most 63 entries, keys and values of at most 256 bytes. Whatever exceeds this is cut off. Control
	// characters become spaces, in Channel and MIMEType as well.
	Metadata map[string]string
}

// chunk is a piece of one channel on its way.
type chunk struct {
	channel  string
	index    uint64
	mime     string
	data     []byte
	metadata map[string]string
	// complete: nothing is added to it.
	complete bool
}

// own copies a chunk of the handler's, cut to what the coordinator takes.
func (c Chunk) copied() chunk {
	copied := chunk{channel: clipID(c.Channel), mime: clipID(c.MIMEType), data: bytes.Clone(c.Data)}
	for k, v := range c.Metadata {
		if len(copied.metadata) >= maxChunkMetadata {
			break
		}
		if copied.metadata == nil {
			copied.metadata = make(map[string]string)
		}
		copied.metadata[clipID(k)] = clipID(v)
	}
	return copied
}

// size is what the chunk costs, in bytes.
func (c *chunk) size() int {
	n := chunkOverhead + len(c.data)
	for k, v := range c.metadata {
		n += len(k) + len(v)
	}
	return n
}

// accepts reports whether what is written to a channel goes on in c.
func (c *chunk) accepts(channel string) bool {
	return !c.complete && c.channel == channel && len(c.data) <= maxChunk-utf8.UTFMax
}

// proto converts a chunk that follows lost bytes of its channel; what is not UTF-8 goes as bytes.
func (c *chunk) proto(lost int) *lessorv1.FeedbackChunk {
	p := &lessorv1.FeedbackChunk{Channel: c.channel, Index: c.index, MimeType: c.mime, Metadata: c.metadata}
	if utf8.Valid(c.data) {
		p.Body = &lessorv1.FeedbackChunk_Text{Text: string(c.data)}
	} else {
		p.Body = &lessorv1.FeedbackChunk_Data{Data: c.data}
		if p.MimeType == "" {
			p.MimeType = "application/octet-stream"
		}
	}
	if lost > 0 {
		p.Metadata = make(map[string]string, len(c.metadata)+1)
		maps.Copy(p.Metadata, c.metadata)
		p.Metadata[MetadataDropped] = strconv.Itoa(lost)
	}
	return p
}
