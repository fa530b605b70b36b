//go:build faults

package hostile

import (
	"bytes"
	"net"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

const burst = 200 // frames that are sent at once

// frameAttacks are abuses of HTTP/2 on the gRPC port, described by their names. The test prints how
// each was answered.
var frameAttacks = []attack{
	{"rapid reset", 4, 5_000, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			for range burst {
				_ = w.WriteRSTStream(w.open(statusCall, ""), http2.ErrCodeCancel)
			}
			return burst
		})
	}},
	{"rapid reset, authenticated", 2, 2_000, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			for range burst {
				id := w.open(sessionCall, a.h.tokens[evil])
				_ = w.WriteData(id, false, prefixed(nil))
				_ = w.WriteRSTStream(id, http2.ErrCodeCancel)
			}
			return burst
		})
	}},
	{"calls without an end", 4, 3_000, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			for range burst {
				w.open(sessionCall, a.h.tokens[evil])
			}
			return burst
		})
	}},
	{"ping flood", 4, 8, func(a *attackRun) {
		a.repeatUntilCutOff(func(w *wire) {
			for range burst {
				_ = w.WritePing(false, [8]byte{})
			}
		})
	}},
	{"settings flood", 4, 10_000, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			for i := range burst {
				_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)})
				w.unackedSettings++
			}
			return burst
		})
	}},
	{"settings flood, unread", 4, 40_000, unreadSettings},
	{"CONTINUATION flood", 4, 20, func(a *attackRun) {
		a.repeatUntilCutOff(func(w *wire) { continuations(w, literal("x", 1000)) })
	}},
	{"empty CONTINUATION flood", 2, 10_000, func(a *attackRun) {
		w := a.connect()
		if w == nil {
			return
		}
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.headers(statusCall, "")})
		for !a.ended() {
			for range burst {
				_ = w.WriteContinuation(1, false, nil)
			}
			if !w.flush() {
				return
			}
			a.hit(burst)
		}
	}},
	{"header bomb", 2, 30, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			big := hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("x", 3000)}
			// after the first, each is a single byte that refers to the table of headers
			many := make([]hpack.HeaderField, 4000)
			for i := range many {
				many[i] = big
			}
			w.open(statusCall, "", many...)
			return 1
		})
	}},
	{"oversized metadata", 4, 200, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			id := w.next
			w.next += 2
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.headers(statusCall, "")})
			for range 3 {
				_ = w.WriteContinuation(id, false, literal("y", 8000))
			}
			_ = w.WriteContinuation(id, true, nil)
			return 1
		})
	}},
	{"thousands of headers", 4, 200, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			many := make([]hpack.HeaderField, 380) // just within the limit
			for i := range many {
				many[i] = hpack.HeaderField{Name: "a-bin", Value: "AA"}
			}
			w.open(statusCall, "", many...)
			return 1
		})
	}},
	{"empty DATA flood", 4, 10_000, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			if w.next == 1 {
				w.open(sessionCall, a.h.tokens[evil])
			}
			for range burst {
				_ = w.WriteData(1, false, nil)
			}
			return burst
		})
	}},
	{"padding flood", 4, 5_000, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			if w.next == 1 {
				w.open(sessionCall, a.h.tokens[evil])
			}
			for range burst {
				_ = w.WriteDataPadded(1, false, nil, make([]byte, 255))
			}
			return burst
		})
	}},
	{"PRIORITY flood", 4, 10_000, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			for i := range uint32(burst) {
				_ = w.WritePriority(2*i+1, http2.PriorityParam{StreamDep: 2*i + 3, Weight: 255, Exclusive: true})
			}
			return burst
		})
	}},
	{"RST_STREAM of no stream", 4, 10_000, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			for i := range uint32(burst) {
				_ = w.WriteRSTStream(2*i+1_000_001, http2.ErrCodeCancel)
			}
			return burst
		})
	}},
	{"frames of no kind", 4, 10_000, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			for i := range uint32(burst) {
				_ = w.WriteRawFrame(http2.FrameType(0x40+i%64), 0xff, i, []byte("nothing"))
			}
			return burst
		})
	}},
	{"GOAWAY flood", 4, 10_000, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			for range burst {
				_ = w.WriteGoAway(0, http2.ErrCodeNo, nil)
			}
			return burst
		})
	}},
	{"window overflow", 4, 200, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			id := w.open(sessionCall, a.h.tokens[evil])
			for range 4 {
				_ = w.WriteWindowUpdate(id, 1<<31-1)
				_ = w.WriteWindowUpdate(0, 1<<31-1)
			}
			return 8
		})
	}},
	{"more than the window", 4, 50, func(a *attackRun) {
		a.repeatBursts(func(w *wire) int {
			id := w.open(submitCall, a.h.tokens[evil])
			_ = w.WriteData(id, false, prefixed(make([]byte, 1<<20))[:16<<10])
			for range 64 {
				_ = w.WriteData(id, false, make([]byte, 16<<10))
			}
			return 1
		})
	}},
	{"ids of streams misused", 4, 10, func(a *attackRun) {
		turn := 0
		a.repeatUntilCutOff(func(w *wire) {
			turn++
			switch turn % 5 {
			case 0: // even: reserved for the server
				w.next = 2
				w.open(statusCall, "")
			case 1: // descending
				w.next = 101
				w.open(statusCall, "")
				w.next = 99
				w.open(statusCall, "")
			case 2: // the same twice
				w.open(statusCall, "")
				w.next -= 2
				w.open(statusCall, "")
			case 3: // zero
				w.next = 0
				w.open(statusCall, "")
			case 4: // DATA and SETTINGS on a stream where they are not allowed
				_ = w.WriteData(0, false, []byte("x"))
				_ = w.WriteRawFrame(http2.FrameSettings, 0, 1, nil)
			}
			_ = w.flush()
			<-w.ended
		})
	}},
	{"frames of a wrong length", 4, 20, func(a *attackRun) {
		turn := 0
		a.repeatUntilCutOff(func(w *wire) {
			kinds := []http2.FrameType{
				http2.FramePing, http2.FrameRSTStream, http2.FrameSettings,
				http2.FrameWindowUpdate, http2.FramePriority, http2.FrameGoAway,
			}
			turn++
			kind := kinds[turn%len(kinds)]
			stream := uint32(0)
			if kind == http2.FrameRSTStream || kind == http2.FramePriority {
				stream = 1
			}
			_ = w.WriteRawFrame(kind, 0, stream, []byte("xyz"))
			_ = w.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<20)) // longer than any frame may be
			_ = w.flush()
			<-w.ended
		})
	}},
	{"zero windows", 3, 3_000, zeroWindows},
	{"bodies without an end", 2, 400, unfinished(func(*attackRun) string { return "" })},
	{"bodies without an end, authenticated", 2, 400, unfinished(func(a *attackRun) string { return a.h.tokens[evil] })},
	{"bodies of single bytes", 2, 10_000, singleBytes},
}

// literal returns a header with a value of n bytes, encoded without the table of headers.
func literal(name string, n int) []byte {
	b := append([]byte{0x10, byte(len(name))}, name...) // never to be put into the table
	b = append(b, 0x7f)
	left := n - 127
	for ; left >= 128; left >>= 7 {
		b = append(b, byte(left)|0x80)
	}
	return append(append(b, byte(left)), strings.Repeat("v", n)...)
}

// continuations begins a block of headers, or goes on with it.
func continuations(w *wire, part []byte) {
	if w.next == 1 {
		w.next += 2
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.headers(statusCall, "")})
	}
	for range burst {
		_ = w.WriteContinuation(1, false, part)
	}
}

// unreadSettings requests acknowledgements and does not read them, until the coordinator ends the
// connection.
func unreadSettings(a *attackRun) {
	conn := a.dial(a.h.grpc)
	if conn == nil {
		return
	}
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	_, _ = conn.Write([]byte(http2.ClientPreface))
	settings := bytes.Repeat([]byte{0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0}, 1000)
	for {
		if _, err := conn.Write(settings); err != nil {
			return
		}
		a.hit(1000)
	}
}

const streamsAtOnce = 1000 // of one connection; just within the limit

// hold begins calls on a connection, and keeps them open until the attack is over.
func (a *attackRun) hold(calls int, begin func(w *wire), settings ...http2.Setting) {
	w := a.connect(settings...)
	if w == nil {
		return
	}
	for range calls / 100 {
		for range 100 {
			begin(w)
		}
		if !w.awaitRead() {
			if !a.ended() {
				a.countAnswer(w.endReason)
			}
			return
		}
		a.hit(100)
	}
	<-a.ctx.Done()
}

// zeroWindows requests large answers, and never opens the window for them.
func zeroWindows(a *attackRun) {
	m, err := lessorv1.NewTaskServiceClient(a.dialAs(a.h.tokens[evil])).SubmitTask(a.ctx,
		&lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "big", Payload: make([]byte, 100<<10)}})
	if err != nil {
		if !a.ended() {
			a.t.Errorf("submit: %v", err)
		}
		return
	}
	request, _ := proto.Marshal(&lessorv1.GetTaskRequest{TaskId: m.GetTask().GetTaskId()})
	a.hold(streamsAtOnce, func(w *wire) { w.callOnce(getCall, a.h.tokens[evil], request) },
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
}

// unfinished begins messages and does not end them.
func unfinished(token func(a *attackRun) string) func(*attackRun) {
	return func(a *attackRun) {
		a.hold(200, func(w *wire) {
			id := w.open(submitCall, token(a))
			part := prefixed(make([]byte, 1<<20))[:60<<10]
			for len(part) > 0 {
				n := min(len(part), 16<<10)
				_ = w.WriteData(id, false, part[:n])
				part = part[n:]
			}
		})
	}
}

// singleBytes sends long messages in frames of one byte.
func singleBytes(a *attackRun) {
	const bytes = 100_000
	for !a.ended() {
		w := a.connect()
		if w == nil {
			return
		}
		id := w.open(sessionCall, a.h.tokens[evil])
		_ = w.WriteData(id, false, prefixed(make([]byte, 1<<20))[:5])
		for sent := 0; sent < bytes && w.awaitRead(); sent += burst {
			for range burst {
				_ = w.WriteData(id, false, []byte{0})
			}
			a.hit(burst)
		}
		select {
		case <-w.ended:
			if !a.ended() {
				a.countAnswer(w.endReason)
			}
		case <-a.ctx.Done():
		}
		_ = w.conn.Close()
		<-w.ended
	}
}
