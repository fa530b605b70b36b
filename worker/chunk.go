package worker

import (
	"maps"
	"strconv"
	"unicode/utf8"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// chunkOverhead is counted for each chunk in addition to what it carries, in bytes, so that the
// number of tiny chunks is limited too. metadataOverhead is counted for each entry of its metadata.
const (
	chunkOverhead    = 64
	metadataOverhead = 8
)

// MetadataDropped is the metadata key under which a chunk says how many bytes of its channel were
// dropped right before it; see Task.Output.
const MetadataDropped = "dropped_bytes"

// Chunk is a piece of output that is passed on unchanged, for example a frame of a picture or a
// token of a language model.
type Chunk struct {
	// Channel is the name of the output stream that the chunk belongs to, for example "llm".
	Channel string
	// MIMEType is the type of Data. Empty: text/plain if Data is valid UTF-8, else
	// application/octet-stream.
	MIMEType string
	// Data is the content; at most 64 KiB. Together with all other fields, 64 bytes more, and 8 for
	// each entry of Metadata, it must fit into Config.OutputBuffer, or else it is dropped.
	Data []byte
	// Metadata is free text: at most 63 entries, keys and values of at most 256 bytes. Anything
	// beyond these limits is cut off. Control characters become spaces, in Channel and MIMEType
	// too.
	Metadata map[string]string
}

// chunk is a piece of one channel that was not sent yet.
type chunk struct {
	channel  string
	index    uint64
	mime     string
	data     []byte
	metadata map[string]string
	// borrowed: data is that of the caller, and has to be copied.
	borrowed bool
	// complete: nothing is appended to it.
	complete bool
}

// clipped returns the chunk cut to the limits of the coordinator. It borrows the data.
func (c Chunk) clipped() chunk {
	clipped := chunk{channel: clipID(c.Channel), mime: clipID(c.MIMEType), data: c.Data, borrowed: true}
	for k, v := range c.Metadata {
		if len(clipped.metadata) >= maxChunkMetadata {
			break
		}
		if clipped.metadata == nil {
			clipped.metadata = make(map[string]string)
		}
		clipped.metadata[clipID(k)] = clipID(v)
	}
	return clipped
}

// size is how many bytes of the output buffer the chunk uses.
func (c *chunk) size() int {
	n := chunkOverhead + len(c.channel) + len(c.mime) + len(c.data)
	for k, v := range c.metadata {
		n += metadataOverhead + len(k) + len(v)
	}
	return n
}

// accepts reports whether new output of the channel may be appended to c.
func (c *chunk) accepts(channel string) bool {
	return !c.complete && c.channel == channel
}

// proto converts a chunk before which lost bytes of its channel were dropped. Data that is not
// valid UTF-8 is sent as bytes.
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
