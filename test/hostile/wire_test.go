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

// attackRun is one run of an attack, by any number of goroutines.
type attackRun struct {
	ctx    context.Context //nolint:containedctx // the attack ends with it
	t      *testing.T
	h      *host
	least  int64
	hits   atomic.Int64
	enough chan struct{} // closed when hits has reached least

	mu           sync.Mutex
	answerCounts map[string]int // how often the coordinator gave each kind of answer
}

func newAttackRun(ctx context.Context, t *testing.T, h *host, least int) *attackRun {
	return &attackRun{ctx: ctx, t: t, h: h, least: int64(least), enough: make(chan struct{}), answerCounts: map[string]int{}}
}

// hit counts what has landed.
func (a *attackRun) hit(n int) {
	if now := a.hits.Add(int64(n)); now >= a.least && now-int64(n) < a.least {
		close(a.enough)
	}
}

func (a *attackRun) ended() bool { return a.ctx.Err() != nil }

// countAnswer counts an answer of the coordinator.
func (a *attackRun) countAnswer(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answerCounts[what]++
}

func (a *attackRun) answers() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answerCounts
}

// attackerDialer dials from the address of the attackers; honest clients have another one.
var attackerDialer = dialerOf(2)

func dialerOf(host byte) net.Dialer {
	return net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}, Timeout: harness.Patience}
}

// dial connects to one of the ports; it returns nil when the attack is over. The connection ends
// with the attack.
func (a *attackRun) dial(addr string) net.Conn {
	return a.dialFrom(attackerDialer, addr)
}

// dialFrom is like dial, from the address of a dialer.
func (a *attackRun) dialFrom(dialer net.Dialer, addr string) net.Conn {
	conn, err := dialer.DialContext(a.ctx, "tcp", addr)
	if err != nil {
		if !a.ended() {
			a.t.Errorf("connect: %v", err)
		}
		return nil
	}
	context.AfterFunc(a.ctx, func() { _ = conn.Close() })
	return conn
}

// dialAs connects from the attackers' address, with a token unless it is empty. The connection ends
// with the attack.
func (a *attackRun) dialAs(token string) *grpc.ClientConn {
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return attackerDialer.DialContext(ctx, "tcp", addr)
		}),
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
	a               *attackRun
	conn            net.Conn
	out             *bufio.Writer
	block           bytes.Buffer
	enc             *hpack.Encoder
	next            uint32 // id of the next stream
	unackedSettings int    // SETTINGS that were sent and not yet acknowledged

	acks      chan struct{} // one value for each acknowledgement of SETTINGS
	ended     chan struct{} // closed when the coordinator has ended the connection
	endReason string        // how it ended; valid after that
}

// connect opens a connection, and sends the preface and these settings. It returns nil when the
// attack is over.
func (a *attackRun) connect(settings ...http2.Setting) *wire {
	conn := a.dial(a.h.grpc)
	if conn == nil {
		return nil
	}
	w := &wire{
		a: a, conn: conn, out: bufio.NewWriterSize(conn, 32<<10), next: 1, acks: make(chan struct{}, 1<<16),
		ended: make(chan struct{}),
	}
	w.Framer = http2.NewFramer(w.out, conn)
	w.AllowIllegalWrites, w.ReadMetaHeaders = true, hpack.NewDecoder(4<<10, nil)
	w.enc = hpack.NewEncoder(&w.block)
	_, _ = w.out.WriteString(http2.ClientPreface)
	_ = w.WriteSettings(settings...)
	w.unackedSettings++
	if len(settings) == 0 {
		_ = w.WriteWindowUpdate(0, 1<<30)
	}
	go w.read()
	return w
}

// read reads the coordinator's frames, and counts its answers.
func (w *wire) read() {
	defer close(w.ended)
	w.endReason = "closed"
	for {
		f, err := w.ReadFrame()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				w.endReason = "unread"
			}
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				w.acks <- struct{}{}
			}
		case *http2.GoAwayFrame:
			w.endReason = fmt.Sprintf("GOAWAY %v %s", f.ErrCode, bytes.TrimRight(firstWords(f.DebugData()), " "))
		case *http2.RSTStreamFrame:
			w.a.countAnswer("RST " + f.ErrCode.String())
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if field.Name == "grpc-status" {
					n, _ := strconv.Atoi(field.Value)
					w.a.countAnswer(codes.Code(n).String())
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

// awaitRead waits until the coordinator has read all that was sent so far, by way of an
// acknowledged SETTINGS. It returns false if the coordinator has ended the connection instead.
func (w *wire) awaitRead() bool {
	_ = w.WriteSettings()
	w.unackedSettings++
	if !w.flush() {
		<-w.ended
		return false
	}
	for ; w.unackedSettings > 0; w.unackedSettings-- {
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

// callOnce makes a whole call with this message.
func (w *wire) callOnce(call, token string, message []byte) {
	id := w.open(call, token)
	_ = w.WriteData(id, true, prefixed(message))
}

// prefixed returns a message with gRPC's prefix of five bytes.
func prefixed(message []byte) []byte {
	return append([]byte{
		0, byte(len(message) >> 24), byte(len(message) >> 16), byte(len(message) >> 8),
		byte(len(message)),
	}, message...)
}

// repeatBursts repeats send on one connection after the other. send writes a burst, and returns how
// many hits it counts as. The burst has landed when the coordinator has read it, or has ended the
// connection.
func (a *attackRun) repeatBursts(send func(w *wire) int, settings ...http2.Setting) {
	for !a.ended() {
		w := a.connect(settings...)
		if w == nil {
			return
		}
		for !a.ended() {
			n := send(w)
			goOn := w.awaitRead()
			if a.ended() {
				break
			}
			a.hit(n)
			if !goOn {
				a.countAnswer(w.endReason)
				break
			}
		}
		_ = w.conn.Close()
		<-w.ended
	}
}

// repeatUntilCutOff repeats send until the coordinator ends the connection. Each such end counts as
// one hit.
func (a *attackRun) repeatUntilCutOff(send func(w *wire), settings ...http2.Setting) {
	for !a.ended() {
		w := a.connect(settings...)
		if w == nil {
			return
		}
		for ended := false; !ended && !a.ended(); {
			send(w)
			_ = w.flush()
			select {
			case <-w.ended:
				ended = true
			default:
			}
		}
		if !a.ended() {
			a.countAnswer(w.endReason)
			a.hit(1)
		}
		_ = w.conn.Close()
		<-w.ended
	}
}
