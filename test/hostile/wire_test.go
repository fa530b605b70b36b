//go:build faults

package hostile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/worker"
)

// assault is one run of an attack, by any number of goroutines.
type assault struct {
	ctx    context.Context //nolint:containedctx // the attack ends with it
	t      *testing.T
	h      *house
	least  int64
	hits   atomic.Int64
	landed chan struct{} // closed when hits has reached least

	mu   sync.Mutex
	told map[string]int // how often the coordinator gave each kind of answer
}

func newAssault(ctx context.Context, t *testing.T, h *house, least int) *assault {
	return &assault{ctx: ctx, t: t, h: h, least: int64(least), landed: make(chan struct{}), told: map[string]int{}}
}

// hit counts what has landed.
func (a *assault) hit(n int) {
	if now := a.hits.Add(int64(n)); now >= a.least && now-int64(n) < a.least {
		close(a.landed)
	}
}

func (a *assault) over() bool { return a.ctx.Err() != nil }

// tell counts an answer of the coordinator.
func (a *assault) tell(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[what]++
}

func (a *assault) answers() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told
}

// from is the address of the attackers; honest clients have another one.
var from = net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: harness.Patience}

// dial connects to one of the ports; it returns nil when the attack is over. The connection ends with the attack.
func (a *assault) dial(addr string) net.Conn {
	conn, err := from.DialContext(a.ctx, "tcp", addr)
	if err != nil {
		if !a.over() {
			a.t.Errorf("connect: %v", err)
		}
		return nil
	}
	context.AfterFunc(a.ctx, func() { _ = conn.Close() })
	return conn
}

// dialAs connects from the attackers' address, with a token unless it is empty. The connection ends with the attack.
func (a *assault) dialAs(token string) *grpc.ClientConn {
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return from.DialContext(ctx, "tcp", addr) }),
	}
	if token != "" {
		bearer := worker.StaticToken(token)
		bearer.PlainText = true
		opts = append(opts, grpc.WithPerRPCCredentials(bearer))
	}
	conn, err := grpc.NewClient("passthrough:///"+a.h.grpc, opts...)
	if err != nil {
		panic(err) // the options are constant, so there is no error
	}
	context.AfterFunc(a.ctx, func() { _ = conn.Close() })
	return conn
}

// wire is a connection to the gRPC port on which one goroutine may write any frames.
type wire struct {
	*http2.Framer
	a     *assault
	conn  net.Conn
	out   *bufio.Writer
	block bytes.Buffer
	enc   *hpack.Encoder
	next  uint32 // id of the next stream
	asks  int    // SETTINGS that were sent and not yet acknowledged

	acks  chan struct{} // one value for each acknowledgement of SETTINGS
	ended chan struct{} // closed when the coordinator has ended the connection
	why   string        // how it ended; valid after that
}

// connect opens a connection, and sends the preface and these settings. It returns nil when the attack is over.
func (a *assault) connect(settings ...http2.Setting) *wire {
	conn := a.dial(a.h.grpc)
	if conn == nil {
		return nil
	}
	w := &wire{a: a, conn: conn, out: bufio.NewWriterSize(conn, 32<<10), next: 1, acks: make(chan struct{}, 1<<16), ended: make(chan struct{})}
	w.Framer = http2.NewFramer(w.out, conn)
	w.AllowIllegalWrites, w.ReadMetaHeaders = true, hpack.NewDecoder(4<<10, nil)
	w.enc = hpack.NewEncoder(&w.block)
	_, _ = w.out.WriteString(http2.ClientPreface)
	_ = w.WriteSettings(settings...)
	w.asks++
	if len(settings) == 0 {
		_ = w.WriteWindowUpdate(0, 1<<30)
	}
	go w.read()
	return w
}

// read reads the coordinator's frames, and counts its answers.
func (w *wire) read() {
	defer close(w.ended)
	w.why = "closed"
	for {
		f, err := w.ReadFrame()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				w.why = "unread"
			}
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				w.acks <- struct{}{}
			}
		case *http2.GoAwayFrame:
			w.why = fmt.Sprintf("GOAWAY %v %s", f.ErrCode, bytes.TrimRight(firstWords(f.DebugData()), " "))
		case *http2.RSTStreamFrame:
			w.a.tell("RST " + f.ErrCode.String())
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if field.Name == "grpc-status" {
					n, _ := strconv.Atoi(field.Value)
					w.a.tell(codes.Code(n).String())
				}
			}
		}
	}
}

func firstWords(b []byte) []byte { return b[:min(len(b), 32)] }

// flush sends what was written; false if the connection is over.
func (w *wire) flush() bool {
	_ = w.conn.SetWriteDeadline(time.Now().Add(harness.Patience))
	return w.out.Flush() == nil
}

// taken waits until the coordinator has read all that was sent so far, by way of an acknowledged SETTINGS. It returns false if the coordinator has
// ended the connection instead.
func (w *wire) taken() bool {
	_ = w.WriteSettings()
	w.asks++
	if !w.flush() {
		<-w.ended
		return false
	}
	for ; w.asks > 0; w.asks-- {
		select {
		case <-w.acks:
		case <-w.ended:
			return false
		}
	}
	return true
}

// Calls that attackers make.
const (
	statusCall  = lessorv1.AdminService_GetStatus_FullMethodName
	getCall     = lessorv1.TaskService_GetTask_FullMethodName
	submitCall  = lessorv1.TaskService_SubmitTask_FullMethodName
	sessionCall = lessorv1.WorkerService_Session_FullMethodName
)

// headers encodes the headers of a call, with a token unless it is empty.
func (w *wire) headers(call, token string, more ...hpack.HeaderField) []byte {
	w.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: call},
		{Name: ":authority", Value: "lessor"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, more...) {
		_ = w.enc.WriteField(f)
	}
	if token != "" {
		_ = w.enc.WriteField(hpack.HeaderField{Name: "authorization", Value: "Bearer " + token})
	}
	return w.block.Bytes()
}

// open begins a call and returns the id of its stream.
func (w *wire) open(call, token string, more ...hpack.HeaderField) uint32 {
	id := w.next
	w.next += 2
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.headers(call, token, more...), EndHeaders: true})
	return id
}

// ask makes a whole call with this message.
func (w *wire) ask(call, token string, message []byte) {
	id := w.open(call, token)
	_ = w.WriteData(id, true, prefixed(message))
}

// prefixed returns a message with gRPC's prefix of five bytes.
func prefixed(message []byte) []byte {
	return append([]byte{0, byte(len(message) >> 24), byte(len(message) >> 16), byte(len(message) >> 8), byte(len(message))}, message...)
}

// each repeats say on one connection after the other. say sends a burst, and returns what it counts as. The burst has landed when the coordinator has
// read it, or has ended the connection.
func (a *assault) each(say func(w *wire) int, settings ...http2.Setting) {
	for !a.over() {
		w := a.connect(settings...)
		if w == nil {
			return
		}
		for !a.over() {
			n := say(w)
			goOn := w.taken()
			if a.over() {
				break
			}
			a.hit(n)
			if !goOn {
				a.tell(w.why)
				break
			}
		}
		_ = w.conn.Close()
		<-w.ended
	}
}

// cutOff repeats say until the coordinator ends the connection. Each such end counts as one hit.
func (a *assault) cutOff(say func(w *wire), settings ...http2.Setting) {
	for !a.over() {
		w := a.connect(settings...)
		if w == nil {
			return
		}
		for ended := false; !ended && !a.over(); {
			say(w)
			_ = w.flush()
			select {
			case <-w.ended:
				ended = true
			default:
			}
		}
		if !a.over() {
			a.tell(w.why)
			a.hit(1)
		}
		_ = w.conn.Close()
		<-w.ended
	}
}
