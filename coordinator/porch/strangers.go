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

// Bounds of calls without a good credential (X5). The message of a unary call is read, whatever its size, before an interceptor sees the call, so that a
// stranger could have any number of them kept, and half of each for ever.
const (
	mostStrangers    = 32  // calls of one address under way that will be refused; as many again that ask for health
	mostAllStrangers = 256 // of all addresses; health is not counted in it, so that strangers cannot make a coordinator look dead
	strangersTime    = 10 * time.Second
)

// Gate is what stands behind the porch: it tells good credentials from others.
type Gate interface {
	// Shown is ctx of a call that may go on, since it has shown a good credential or none are asked for. Otherwise it says what is wrong.
	Shown(ctx context.Context) (context.Context, error)
	// AsksNone reports whether a call needs no credential.
	AsksNone(method string) bool
}

// porch is where calls wait whose caller has shown no good credential. It is safe for concurrent use.
type porch struct {
	most, mostOfPeer int

	mu     sync.Mutex
	all    int
	ofPeer map[string]int // by addressKey
}

func newPorch(most, mostOfPeer int) *porch {
	return &porch{most: most, mostOfPeer: mostOfPeer, ofPeer: map[string]int{}}
}

// enter counts a call; ok is false where there is no room for it.
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

// NewStrangers makes room for those who do not pass the gate. Of connections there may be so many.
func NewStrangers(gate Gate, connections int) *Strangers {
	return &Strangers{gate: gate, refused: newPorch(mostAllStrangers, mostStrangers), healthy: newPorch(connections, mostStrangers)}
}

// Tap looks at a call before its message is read, on the goroutine that reads the connection: it must not block. Good callers go on as who they have
// shown to be. There is room for some others, who are answered when their message is there, if that is soon.
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
	if info.FullMethodName != healthv1.Health_Watch_FullMethodName { // which lasts
		soon, cancel = context.WithTimeout(ctx, strangersTime)
	}
	context.AfterFunc(ctx, func() { cancel(); leave() }) // at the end of the call
	return soon, nil
}

// errStrangers refuses a call for which there is no room.
var errStrangers = refusal.New(codes.ResourceExhausted, refusal.CodeQuotaAttempts,
	fmt.Sprintf("too many calls without a good credential are under way; of one address the quota is %d", mostStrangers),
	map[string]string{"limit": "attempts", "of": "address", "value": fmt.Sprint(mostStrangers)}, refusal.RetryIn(time.Second))
