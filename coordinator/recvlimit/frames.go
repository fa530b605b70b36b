package recvlimit

import "encoding/binary"

// Types and flags of frames of HTTP/2 (RFC 9113, section 6).
const (
	typeData      = 0
	typeHeaders   = 1
	typeRSTStream = 3

	flagEndStream = 1
	flagPadded    = 8
)

// headSize is the size of the head of a frame.
const headSize = 9

// prefaceSize is the size of what a client sends before its first frame.
const prefaceSize = 24

// frames follows the frames in one direction of a connection. The bytes may come in pieces of any
// size.
type frames struct {
	skip  int // bytes before the first frame
	begun int // bytes of head that have come
	head  [headSize]byte

	// Of the frame whose payload comes.
	left    int // bytes of the payload that have not come
	padding int // those of them, at the end, that are padding; -1: the first byte will tell
}

func (f *frames) kind() byte         { return f.head[3] }
func (f *frames) has(flag byte) bool { return f.head[4]&flag != 0 }
func (f *frames) stream() uint32     { return binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31) }

// endsStream reports whether the sender says with this frame that it sends no more on its stream.
func (f *frames) endsStream() bool {
	return f.kind() == typeRSTStream || (f.kind() == typeData || f.kind() == typeHeaders) && f.has(flagEndStream)
}

// next takes bytes from the front of p. It returns the content that they are of a frame of DATA,
// without padding, and the rest of p. ended reports whether the frame, of whatever type, ends with
// them.
func (f *frames) next(p []byte) (content, rest []byte, ended bool) {
	switch {
	case f.skip > 0:
		n := min(f.skip, len(p))
		f.skip -= n
		return nil, p[n:], false
	case f.begun < headSize:
		n := copy(f.head[f.begun:], p)
		f.begun += n
		if f.begun < headSize {
			return nil, nil, false
		}
		f.left, f.padding = int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2]), 0
		if f.kind() == typeData && f.has(flagPadded) {
			f.padding = -1
		}
		p = p[n:]
	case f.padding < 0:
		f.padding = int(p[0])
		f.left--
		p = p[1:]
	default:
		n := min(f.left, len(p))
		if f.kind() == typeData {
			content = p[:min(n, max(f.left-f.padding, 0))]
		}
		f.left -= n
		p = p[n:]
	}
	if f.left > 0 {
		return content, p, false
	}
	f.begun = 0
	return content, p, true
}
