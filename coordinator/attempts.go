package coordinator

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// The pace of what is wrong, by those who make unary calls (X5): each has some turns, and what comes sooner is answered in its turn. Nothing that is
// right waits.
var (
	attemptPace = quota.Rate{PerSecond: 100, Burst: 1000} // of an address, without a good credential
	rejectPace  = quota.Rate{PerSecond: 100, Burst: 1000} // of a credential, reports that are REJECTED; and calls over its quotas
)

// Longest waits for a turn.
const (
	longestAttempt = 2 * time.Second // beyond, the attempt is refused
	longestReject  = time.Second
)

// attempts paces calls without a good credential.
type attempts struct{ *quota.Pacer }

func newAttempts() attempts { return attempts{quota.NewPacer(attemptPace, longestAttempt)} }

// failed waits for the turn of a failed attempt, and returns why it failed: err, or that too many did.
func (a attempts) failed(ctx context.Context, err error) error {
	return a.failedFrom(ctx, addressOf(ctx), err)
}

func (a attempts) failedFrom(ctx context.Context, from string, err error) error {
	if from == "" { // on this machine, and without a network
		return refusal.Status(err)
	}
	wait, ok := a.Turn(from)
	if !ok {
		return refusal.New(codes.ResourceExhausted, refusal.CodeQuotaAttempts,
			fmt.Sprintf("too many calls without a good credential come from this address; the quota is %v", attemptPace),
			map[string]string{"limit": "attempts", "of": "address", "value": attemptPace.String()}, refusal.RetryIn(wait))
	}
	pause(ctx, wait)
	return refusal.Status(err)
}

// pause waits, unless the call ends.
func pause(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// addressOf is what the peer of a call is known by, see addressKey.
func addressOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	return addressKey(p.Addr)
}

// addressKey is what an address is known by: of IPv6 the network, of which one host has as many addresses as it likes; empty where there is none.
func addressKey(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return ""
	}
	ip, _ := netip.AddrFromSlice(tcp.IP)
	if ip = ip.Unmap(); ip.Is6() {
		network, _ := ip.Prefix(64) // never fails
		return network.String()
	}
	return ip.String()
}

// rejects paces answers that are no use to who gets them: to reports that no worker says that obeys the protocol, and to calls that come although their
// quota is used up.
type rejects struct{ *quota.Pacer }

func newRejects() rejects { return rejects{quota.NewPacer(rejectPace, longestReject)} }

// answer waits before such an answer is given, and returns for how long it did.
func (r rejects) answer(ctx context.Context, who quota.Caller) time.Duration {
	wait, _ := r.Turn(who.Tenant + "\x00" + who.Credential)
	begin := time.Now()
	pause(ctx, min(wait, longestReject))
	return time.Since(begin)
}
