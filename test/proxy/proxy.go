package proxy

import (
	"context"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Proxy carries sessions, and nothing else, to a coordinator. On the coordinator's side each stream
// has its own connection. On the worker's side, a cut ends everything that shares the connection
// with the stream.
type Proxy struct {
	lessorv1.UnimplementedWorkerServiceServer
	counts

	addr      string
	target    func() string
	seed      uint64
	rates     Rates
	faultless atomic.Bool
	opened    atomic.Uint64 // number of streams so far

	mu    sync.Mutex
	conns map[string]*conn // the workers' connections, by their addresses
}

// New starts a proxy that ends with the test. target returns where the coordinator is.
func New(t testing.TB, target func() string, seed uint64, rates Rates) *Proxy {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{addr: lis.Addr().String(), target: target, seed: seed, rates: rates, conns: map[string]*conn{}}
	srv := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32))
	lessorv1.RegisterWorkerServiceServer(srv, p)
	go func() { _ = srv.Serve(&listener{Listener: lis, p: p}) }()
	t.Cleanup(srv.Stop)
	return p
}

// Addr returns the address for workers.
func (p *Proxy) Addr() string { return p.addr }

// StopFaults ends the faults.
func (p *Proxy) StopFaults() { p.faultless.Store(true) }

// listener makes connections that can be torn.
type listener struct {
	net.Listener
	p *Proxy
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := newConn(raw, nothing)
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.conns[raw.RemoteAddr().String()] = c
	return c, nil
}

// connOf returns the worker's connection that carries a stream.
func (p *Proxy) connOf(ctx context.Context) (*conn, error) {
	from, _ := peer.FromContext(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[from.Addr.String()]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("nobody is known at %v", from.Addr)
}

// dial makes a connection to the coordinator for one stream, and sends the network connection to
// conns.
func (p *Proxy) dial(conns chan<- *conn) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		raw, err := d.DialContext(ctx, "tcp", p.target())
		if err != nil {
			return nil, err
		}
		c := newConn(raw, preface)
		select {
		case conns <- c:
			return c, nil
		default: // gRPC tries to reconnect, but the stream would not survive that
			raw.Close()
			return nil, fmt.Errorf("the stream has had its connection")
		}
	}
	return grpc.NewClient("passthrough:///coordinator", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
}

// Session carries one stream.
func (p *Proxy) Session(worker grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]) error {
	near, err := p.connOf(worker.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(worker.Context(), time.Hour)
	defer cancel()
	conns := make(chan *conn, 1)
	cc, err := p.dial(conns)
	if err != nil {
		return err
	}
	defer cc.Close()
	coordinator, err := lessorv1.NewWorkerServiceClient(cc).Session(ctx)
	if err != nil {
		return err
	}
	s := &session{p: p, near: near, far: <-conns}
	return s.carry(ctx, worker, coordinator)
}
