package preauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

// X5: the number of calls without a good credential is limited for each address and in total. A call that ends makes room for exactly one other, even if
// leave is called twice. When all calls have ended, nothing is counted for any address.
func TestCallCounter(t *testing.T) {
	t.Attr("rules", "X5")
	p := newCallCounter(3, 2)
	var leaves []func()
	for i, ip := range []string{"a", "a", "a", "b", "c"} {
		leave, ok := p.enter(ip)
		if want := i != 2 && i != 4; ok != want {
			t.Errorf("call %d, from %s, was accepted: %v, want %v", i, ip, ok, want)
		}
		if ok {
			leaves = append(leaves, leave)
		}
	}
	last := leaves[len(leaves)-1]
	last()
	last()
	leave, ok := p.enter("c")
	if !ok || p.all != 3 {
		t.Fatalf("the next call was accepted: %v, with %d calls in total, want true and 3", ok, p.all)
	}
	for _, leave := range append(leaves, leave) {
		leave()
	}
	if p.all != 0 || len(p.ofPeer) != 0 {
		t.Errorf("%d calls are counted, by address %v, want none", p.all, p.ofPeer)
	}
}

// testGate is a gate that refuses a credential with refusal.
type testGate struct {
	refusal   error
	free      bool // no call needs a credential
	certEnded bool
}

func (g *testGate) CheckCredential(ctx context.Context) (context.Context, error) {
	return ctx, g.refusal
}
func (g *testGate) NeedsNoCredential(string) bool         { return g.free }
func (g *testGate) CertificateEnded(context.Context) bool { return g.certEnded }

// X3: a call closes its connection if the client certificate of the connection was valid and has ended, but not before answers under way have had their
// time. A health check does not, nor does a call that is refused for another reason, such as a bad token: other callers may use the same connection.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	t.Attr("rules", "X3")
	for _, wasGood := range []bool{false, true} {
		for _, gate := range []testGate{{}, {certEnded: true}, {free: true}, {free: true, certEnded: true}} {
			t.Run(fmt.Sprintf("was good %t, needs none %t, certificate ended %t", wasGood, gate.free, gate.certEnded), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					conn, other := net.Pipe()
					defer func() { _, _ = conn.Close(), other.Close() }()
					ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: conn.RemoteAddr(), AuthInfo: &tlsConn{conn: conn}})
					l := NewCallLimiter(&gate, 1)
					if wasGood {
						if _, err := l.Tap(ctx, &tap.Info{}); err != nil {
							t.Fatal(err)
						}
					}
					gate.refusal = errors.New("refused")
					_, err := l.Tap(ctx, &tap.Info{})
					ends := wasGood && gate.certEnded && !gate.free
					if errors.Is(err, errRetired) != ends || !ends && err != nil {
						t.Errorf("the call ends with %v, want that it closes the connection: %t", err, ends)
					}
					begin := time.Now()
					_ = other.SetReadDeadline(begin.Add(time.Minute))
					_, err = other.Read(make([]byte, 1))
					if took := time.Since(begin); ends && (!errors.Is(err, io.EOF) || took != lastWords) || !ends && !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("after %v: %v, want that the connection is closed after %v: %t", took, err, lastWords, ends)
					}
				})
			})
		}
	}
}
