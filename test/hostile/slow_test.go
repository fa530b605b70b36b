//go:build faults

package hostile

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lessor-dev/lessor/test/harness"
)

// slowKind is a way to keep a connection open and send little or nothing.
type slowKind struct {
	name         string
	http         bool          // on the HTTP port
	send         func() string // returns what is sent at once; after that, if drip is set, one byte of it each second
	drip         byte
	readsNothing bool // reads no answer
}

// ofEach is the number of connections of each kind.
const ofEach = 20

const opened = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // the client's preface and empty settings

var slow = []slowKind{
	{name: "silence", send: func() string { return "" }},
	{name: "half a preface", send: func() string { return http2.ClientPreface[:12] }},
	{name: "a preface, drop by drop", send: func() string { return "" }, drip: 'P'},
	{name: "a preface and no settings", send: func() string { return http2.ClientPreface }},
	{name: "silence after the preface", send: func() string { return opened }},
	{name: "half of the headers", send: func() string { return opened + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x83" }},
	{name: "a frame, drop by drop", send: func() string { return opened + "\x00\x40\x00\x00\x00\x00\x00\x00\x01" }, drip: 'x'},
	{name: "HTTP/1 to gRPC", send: func() string { return "GET / HTTP/1.1\r\nHost: lessor\r\n\r\n" }},
	{name: "TLS to plain text", send: func() string { return "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" }},

	{name: "silence", http: true, send: func() string { return "" }},
	{name: "headers, drop by drop", http: true, send: func() string { return "GET /healthz HTTP/1.1\r\nX-A: " }, drip: 'a'},
	{name: "body, drop by drop", http: true, send: func() string {
		return "POST /v1/tasks HTTP/1.1\r\nHost: lessor\r\nAuthorization: Bearer TOKEN\r\nContent-Length: 1000\r\n\r\n"
	}, drip: ' '},
	{name: "chunks, drop by drop", http: true, send: func() string {
		return "POST /v1/tasks HTTP/1.1\r\nHost: lessor\r\nAuthorization: Bearer TOKEN\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n"
	}, drip: ' '},
	{name: "answers that nobody reads", http: true, readsNothing: true, send: func() string {
		return strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: lessor\r\n\r\n", 400)
	}, drip: 'G'},
	{name: "HTTP/2 to HTTP/1", http: true, send: func() string { return opened }},
	{name: "TLS to plain text", http: true, send: func() string { return "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" }},
}

// slowClients are the connections of all kinds.
type slowClients struct {
	stop      context.CancelFunc
	busy      sync.WaitGroup
	mu        sync.Mutex
	lifetimes map[string][]time.Duration // how long each connection has lived, by its kind
	want      map[string]int
}

// startSlowClients opens all of them. They stay open during the other attacks.
func (h *host) startSlowClients(t *testing.T) *slowClients {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	c := &slowClients{stop: stop, lifetimes: map[string][]time.Duration{}, want: map[string]int{}}
	for _, kind := range slow {
		addr, name := h.grpc, "gRPC: "+kind.name
		if kind.http {
			addr, name = h.http, "HTTP: "+kind.name
		}
		c.want[name] = ofEach
		for range ofEach {
			conn, err := attackerDialer.DialContext(ctx, "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			c.busy.Go(func() {
				began := time.Now()
				kind.awaitCutOff(ctx, conn, strings.ReplaceAll(kind.send(), "TOKEN", h.tokens[evil]))
				if ctx.Err() == nil {
					c.ended(name, time.Since(began))
				}
			})
		}
	}
	return c
}

// awaitCutOff returns when the coordinator has ended the connection.
func (k slowKind) awaitCutOff(ctx context.Context, conn net.Conn, first string) {
	connCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	if k.readsNothing {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	} else {
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, conn)
		}()
	}
	if _, err := conn.Write([]byte(first)); err != nil {
		return
	}
	drops := time.NewTicker(time.Second)
	defer drops.Stop()
	for {
		select {
		case <-connCtx.Done():
			return
		case <-drops.C:
		}
		if k.drip == 0 {
			continue
		}
		if _, err := conn.Write([]byte{k.drip}); err != nil {
			return
		}
	}
}

func (c *slowClients) ended(name string, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lifetimes[name] = append(c.lifetimes[name], after)
}

// end checks that the coordinator has ended each of the connections.
func (c *slowClients) end(t *testing.T) {
	t.Helper()
	patience := time.AfterFunc(harness.Patience, c.stop)
	defer patience.Stop()
	c.busy.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, n := range c.want {
		var longest time.Duration
		for _, d := range c.lifetimes[name] {
			longest = max(longest, d)
		}
		t.Logf("%-36s %d of %d ended by the coordinator, the last after %v",
			name, len(c.lifetimes[name]), n, longest.Round(100*time.Millisecond))
		if len(c.lifetimes[name]) != n {
			t.Errorf("%s: the coordinator has ended %d connections, want all %d", name, len(c.lifetimes[name]), n)
		}
	}
}
