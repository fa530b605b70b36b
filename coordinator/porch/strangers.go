package porch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/tap"

	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// Bounds of calls without a good credential (X5). gRPC reads the whole message of a unary call before an interceptor sees the call. So without
// bounds a stranger could begin any number of messages, send half of each, and have the halves kept for ever.
const (
	mostStrangers    = 32  // calls under way from one address that will be refused; the same number of health checks is allowed in addition
	mostAllStrangers = 256 // from all addresses; health checks do not count, so that strangers cannot make a coordinator look dead
	strangersTime    = 10 * time.Second
)

// Gate tells good credentials from others. The gate behind the porch implements it.
type Gate interface {
	// Shown returns nil for a call that may go on, because it has shown a good credential or none are asked for; the context then carries who calls.
	// Else it returns what is wrong with the credential.
	Shown(ctx context.Context) (context.Context, error)
	// AsksNone reports whether a call needs no credential.
	AsksNone(method string) bool
}

// porch counts the calls under way whose callers have shown no good credential. It is safe for concurrent use.
type porch struct {
	most, mostOfPeer int

	mu     sync.Mutex
	all    int
	ofPeer map[string]int // by addressKey
}

func newPorch(most, mostOfPeer int) *porch {
	return &porch{most: most, mostOfPeer: mostOfPeer, ofPeer: map[string]int{}}
}

// enter counts a call until leave is called; ok is false if there is no room for it.
func (p *porch) enter(peer string) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= p.most || p.ofPeer[peer] >= p.mostOfPeer {
		return nil, false
	}
	p.all++
	p.ofPeer[peer]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		less(p.ofPeer, peer)
	}), true
}

// Strangers are the calls of a listener whose callers have shown no good credential.
type Strangers struct {
	gate             Gate
	refused, healthy *porch
}

// NewStrangers returns the bounds for calls that the gate does not know. connections is how many connections may be open; it bounds the health
// checks.
func NewStrangers(gate Gate, connections int) *Strangers {
	return &Strangers{gate: gate, refused: newPorch(mostAllStrangers, mostStrangers), healthy: newPorch(connections, mostStrangers)}
}

// Tap sees each call before its message is read, on the goroutine that reads the connection, so it must not block. A call with a good credential
// goes on, with its identity in the context. A bounded number of others go on to be refused once their message has been read; they get strangersTime
// for it.
func (s *Strangers) Tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if shown, err := s.gate.Shown(ctx); err == nil {
		return shown, nil
	}
	room := s.refused
	if s.gate.AsksNone(info.FullMethodName) {
		room = s.healthy
	}
	leave, ok := room.enter(addressOf(ctx))
	if !ok {
		return ctx, errStrangers
	}
	soon, cancel := ctx, func() {}
	if info.FullMethodName != healthv1.Health_Watch_FullMethodName { // a watch may stay open
		soon, cancel = context.WithTimeout(ctx, strangersTime)
	}
	context.AfterFunc(ctx, func() { cancel(); leave() }) // at the end of the call
	return soon, nil
}

// errStrangers refuses a call for which there is no room.
var errStrangers = refusal.New(codes.ResourceExhausted, refusal.CodeQuotaAttempts,
	fmt.Sprintf("too many calls without a valid credential are under way; the quota of one address is %d", mostStrangers),
	map[string]string{"limit": "attempts", "of": "address", "value": fmt.Sprint(mostStrangers)}, refusal.RetryIn(time.Second))
