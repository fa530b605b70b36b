package preauth

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

// Limits of calls without a valid credential (X5). Most of them are refused before their message is
// read. But the message of a health check is read, and so is that of a call whose refusal is
// audited. So without limits anybody could begin any number of messages and send half of each, and
// the coordinator would keep these halves for ever.
const (
	// maxCallsOfPeer bounds the calls under way from one address that will be refused. The same
	// number of health checks is allowed in addition.
	maxCallsOfPeer = 32
	// maxCalls bounds those from all addresses. Health checks do not count, so that nobody can make
	// a coordinator look dead by using up this limit.
	maxCalls    = 256
	maxCallTime = 10 * time.Second
)

// Gate checks credentials. Package gate implements it.
type Gate interface {
	// CheckCredential returns no error for a call that may go on, because its credential is valid,
	// which it notes with CredentialShown, or because no credentials are required. Otherwise the
	// error says what is wrong with the credential. The context carries what is known of the
	// caller.
	CheckCredential(ctx context.Context) (context.Context, error)
	// NeedsNoCredential reports whether a call needs no credential.
	NeedsNoCredential(method string) bool
	// CertificateEnded reports whether the client certificate of the connection of a call has
	// expired or was revoked.
	CertificateEnded(ctx context.Context) bool
}

// callCounter counts the calls under way that have no valid credential. It is safe for concurrent
// use.
type callCounter struct {
	most, mostOfPeer int

	mu     sync.Mutex
	all    int
	ofPeer map[string]int // by addressKey
}

func newCallCounter(most, mostOfPeer int) *callCounter {
	return &callCounter{most: most, mostOfPeer: mostOfPeer, ofPeer: map[string]int{}}
}

// enter counts a call until leave is called. ok is false if a limit is reached; then the call is
// not counted.
func (c *callCounter) enter(peer string) (leave func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.ofPeer[peer] >= c.mostOfPeer {
		return nil, false
	}
	c.all++
	c.ofPeer[peer]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		decrement(c.ofPeer, peer)
	}), true
}

// CallLimiter limits the calls of a listener that have no valid credential.
type CallLimiter struct {
	gate    Gate
	refused *callCounter
	health  *callCounter // health checks, which need no credential
}

// NewCallLimiter returns a limiter for the calls that the gate refuses. connections is how many
// connections may be open; it bounds the health checks.
func NewCallLimiter(gate Gate, connections int) *CallLimiter {
	return &CallLimiter{
		gate: gate, refused: newCallCounter(maxCalls, maxCallsOfPeer),
		health: newCallCounter(connections, maxCallsOfPeer),
	}
}

// callsPerTurn is after how many calls the goroutine that reads a connection gives up the
// processor.
const callsPerTurn = 4

// Tap sees each call before its message is read. It runs on the goroutine that reads the
// connection, so it must not block. A call with a valid credential goes on, with its identity in
// the context. A limited number of other calls go on too, for at most maxCallTime: health checks,
// of which Health.Watch may stay open for longer, and calls that the gate refuses. It gives up the
// processor after every few calls of a connection: a client that has many calls ready would
// otherwise start the goroutines of hundreds at once, and everybody else would wait behind them
// (package turn).
func (l *CallLimiter) Tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if c := connOf(ctx); c != nil {
		c.calls.Every(callsPerTurn)
	}
	shown, err := l.gate.CheckCredential(ctx)
	if err == nil {
		return shown, nil
	}
	ended := tlsConnOf(ctx)
	if ended != nil && (l.gate.NeedsNoCredential(info.FullMethodName) || !l.gate.CertificateEnded(ctx)) {
		ended = nil
	}
	if ended != nil && ended.counted.good.Load() {
		ended.retire()
		return ctx, errRetired
	}
	room := l.refused
	if l.gate.NeedsNoCredential(info.FullMethodName) {
		room = l.health
	}
	leave, ok := room.enter(addressOf(ctx))
	if !ok {
		return ctx, errTooManyCalls
	}
	soon, cancel := context.WithValue(shown, refusedKey{}, true), func() {}
	if info.FullMethodName != healthv1.Health_Watch_FullMethodName { // a watch may stay open
		soon, cancel = context.WithTimeout(soon, maxCallTime)
	}
	context.AfterFunc(ctx, func() { // at the end of the call
		cancel()
		leave()
		// the connection began with a certificate that had ended: this call is told so, and the
		// next one may show another
		if ended != nil {
			ended.retire()
		}
	})
	return soon, nil
}

type refusedKey struct{}

// Refused reports whether a call had no valid credential when it began, so that the gate refuses it
// unless it needs none.
func Refused(ctx context.Context) bool {
	refused, _ := ctx.Value(refusedKey{}).(bool)
	return refused
}

// errTooManyCalls refuses a call above maxCallsOfPeer or maxCalls.
var errTooManyCalls = refusal.New(codes.ResourceExhausted, refusal.CodeQuotaAttempts,
	fmt.Sprintf("too many calls without a valid credential are under way; the quota of one address is %d",
		maxCallsOfPeer),
	map[string]string{"limit": "attempts", "of": "address", "value": fmt.Sprint(maxCallsOfPeer)},
	refusal.RetryIn(time.Second))
