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

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

// X5: the number of calls without a good credential is limited for each address and in total. A
// call that ends makes room for exactly one other, even if leave is called twice. When all calls
// have ended, nothing is counted for any address.
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
	if g.refusal == nil {
		CredentialShown(ctx)
	}
	return ctx, g.refusal
}
func (g *testGate) NeedsNoCredential(string) bool         { return g.free }
func (g *testGate) CertificateEnded(context.Context) bool { return g.certEnded }

// X5: refused calls of all addresses together have a limit, too. Health checks go on when it is
// used up, so that nobody can make a coordinator look dead.
func TestHealthChecksHaveTheirOwnLimit(t *testing.T) {
	t.Attr("rules", "X5")
	gate := &testGate{refusal: errors.New("refused")}
	l := NewCallLimiter(gate, 1)
	ctx, end := context.WithCancel(t.Context())
	call := func(i int) error {
		from := &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i))}
		_, err := l.Tap(peer.NewContext(ctx, &peer.Peer{Addr: from}), &tap.Info{})
		return err
	}
	for i := range 256 {
		if err := call(i); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if err := call(256); !errors.Is(err, errTooManyCalls) {
		t.Errorf("one call more: %v, want %v", err, errTooManyCalls)
	}
	gate.free = true
	if err := call(256); err != nil {
		t.Errorf("a health check: %v", err)
	}
	if err := call(257); !errors.Is(err, errTooManyCalls) {
		t.Errorf("more health checks than connections may be open: %v, want %v", err, errTooManyCalls)
	}
	end()
}

// X3: a call closes its connection if the client certificate of the connection has ended, but not
// before answers under way have had their time. If the certificate was valid on this connection,
// the call is not made; otherwise it is refused like any other, and the connection is closed after
// its end, since only a new one can show a new certificate. A health check closes nothing, nor does
// a call that is refused for another reason, such as a bad token: other callers may use the same
// connection.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	t.Attr("rules", "X3")
	for _, wasGood := range []bool{false, true} {
		for _, gate := range []testGate{{}, {certEnded: true}, {free: true}, {free: true, certEnded: true}} {
			t.Run(fmt.Sprintf("was good %t, needs none %t, certificate ended %t", wasGood, gate.free, gate.certEnded), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					in := newGuests(t, Connections{Most: 1, MostOfPeer: 1}).enter("192.0.2.1")
					ctx := peer.NewContext(t.Context(),
						&peer.Peer{Addr: in.RemoteAddr(), AuthInfo: callerInfo(credentials.TLSInfo{}, in.Conn)})
					l := NewCallLimiter(&gate, 1)
					if wasGood {
						if _, err := l.Tap(ctx, &tap.Info{}); err != nil {
							t.Fatal(err)
						}
					}
					gate.refusal = errors.New("refused")
					call, end := context.WithCancel(ctx)
					_, err := l.Tap(call, &tap.Info{})
					ends := gate.certEnded && !gate.free
					if unmade := wasGood && ends; errors.Is(err, errRetired) != unmade || !unmade && err != nil {
						t.Errorf("the call gets %v, want that it is not made: %t", err, unmade)
					}
					if !wasGood { // its answer may be delayed for longer than lastWords
						_ = in.other.SetReadDeadline(time.Now().Add(2 * lastWords))
						if _, err := in.other.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
							t.Errorf("%v while the call is under way, want that the connection stays open", err)
						}
					}
					end()
					begin := time.Now()
					_ = in.other.SetReadDeadline(begin.Add(time.Minute))
					_, err = in.other.Read(make([]byte, 1))
					if took := time.Since(begin); ends && (!errors.Is(err, io.EOF) || took != lastWords) || !ends && !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("after %v: %v, want that the connection is closed after %v: %t", took, err, lastWords, ends)
					}
				})
			})
		}
	}
}
