package preauth

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
)

// Connections limits the connections that may be open (X5), at a time when the callers are not
// known yet. A field that is 0 takes its default.
type Connections struct {
	// Most is how many connections may be open at once, on both listeners together. Further ones
	// are closed at once, or take the place of one on which no valid credential was shown. Default:
	// DefaultConnections.
	Most int
	// MostOfPeer is how many of them may come from one address, or for IPv6 from one /64 network.
	// Default: half of Most.
	MostOfPeer int
	// HandshakesOfPeer is how many TLS handshakes over gRPC one address, or one /64 network, may
	// have under way. gRPC ends each after its connection timeout. Default: DefaultHandshakes.
	HandshakesOfPeer int
}

// DefaultConnections is the default of Connections.Most.
const DefaultConnections = 50_000

// DefaultHandshakes is the default of Connections.HandshakesOfPeer.
const DefaultHandshakes = 100

// Fill gives each field that is zero its default.
func (c *Connections) Fill() {
	c.Most = cmp.Or(c.Most, DefaultConnections)
	c.MostOfPeer = cmp.Or(c.MostOfPeer, max(c.Most/2, 1))
	c.HandshakesOfPeer = cmp.Or(c.HandshakesOfPeer, DefaultHandshakes)
}

// Validate reports the numbers that are out of their range.
func (c *Connections) Validate() error {
	var errs []error
	if c.Most < 1 || c.MostOfPeer < 1 || c.MostOfPeer > c.Most {
		errs = append(errs, fmt.Errorf("the limit of connections is %d, and %d per address; each must be at least 1, and the limit per address at most the total", c.Most, c.MostOfPeer))
	}
	if c.HandshakesOfPeer < 1 {
		errs = append(errs, fmt.Errorf("the limit of TLS handshakes per address is %d; it must be at least 1", c.HandshakesOfPeer))
	}
	return errors.Join(errs...)
}

// ConnLimiter limits open connections and the TLS handshakes under way. It is safe for concurrent
// use.
type ConnLimiter struct {
	Connections
	credentials bool
	refused     *prometheus.CounterVec
	evicted     *prometheus.CounterVec
	failures    *tlsFailures
	log         *slog.Logger
	paced       *pacedLog

	mu         sync.Mutex
	open       int
	ofPeer     map[string]int // by addressKey
	strangers  crowd          // no valid credential was shown on them; none if none are required
	handshakes map[string]int
}

// NewConnLimiter returns a limiter. The settings must be filled and valid. credentials says whether
// callers must show one; then a connection on which none was shown makes room for another when a
// limit is reached.
func NewConnLimiter(c Connections, credentials bool, log *slog.Logger) *ConnLimiter {
	turnedAway := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lessor_connections_refused_total",
		Help: "Connections that were closed because there were too many, by limit.",
	}, []string{"limit"})
	for _, limit := range []string{"all", "address", "handshakes", "files"} {
		turnedAway.WithLabelValues(limit)
	}
	evicted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lessor_connections_evicted_total",
		Help: "Connections that were closed to make room for others, because no valid credential was shown on them, by limit.",
	}, []string{"limit"})
	for _, limit := range []string{"all", "address"} {
		evicted.WithLabelValues(limit)
	}
	paced := newPacedLog(log)
	return &ConnLimiter{
		Connections: c,
		credentials: credentials,
		refused:     turnedAway,
		evicted:     evicted,
		failures:    newTLSFailures(paced),
		log:         log,
		paced:       paced,
		ofPeer:      map[string]int{},
		handshakes:  map[string]int{},
	}
}

// Refused returns the metric of the connections that were closed because there were too many.
func (lim *ConnLimiter) Refused() prometheus.Collector { return lim.refused }

// Evicted returns the metric of the connections that were closed to make room for others.
func (lim *ConnLimiter) Evicted() prometheus.Collector { return lim.evicted }

// Listener returns a listener that accepts only as many connections as the limits allow.
func (lim *ConnLimiter) Listener(lis net.Listener) net.Listener { return limitedListener{lis, lim} }

type limitedListener struct {
	net.Listener
	limiter *ConnLimiter
}

// Accept returns the next connection that is within the limits, or for which another one makes
// room. It closes connections that are not. It gives up the processor before each: while
// connections come in faster than they are served, the goroutines of those before would otherwise
// queue up by the hundreds, and everybody else would wait behind them (package turn).
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		runtime.Gosched()
		conn, err := l.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			// The servers try again, at most a second later.
			l.limiter.refused.WithLabelValues("files").Inc()
			l.limiter.log.Warn("cannot accept a connection: too many open files; raise the limit (ulimit -n, LimitNOFILE)", "error", err)
		}
		if err != nil {
			return nil, err
		}
		in := &countedConn{Conn: conn, limiter: l.limiter, from: originOf(conn.RemoteAddr()), began: time.Now()}
		full, out := l.limiter.enter(in)
		if full != "" && out == nil {
			l.limiter.refused.WithLabelValues(full).Inc()
			l.limiter.tell("connection closed: there are too many", full, conn)
			_ = conn.Close() // nothing was sent or read yet, so an error does not matter
			continue
		}
		if out != nil {
			l.limiter.evicted.WithLabelValues(full).Inc()
			l.limiter.tell("connection without a valid credential closed: there are too many", full, out)
			_ = out.Close() // its server reads the error, too
		}
		return in.lean(), nil
	}
}

// tell logs that a connection is closed because of a limit: the caller sees only that it ends, and
// no call of it is ever counted.
func (lim *ConnLimiter) tell(message, limit string, conn net.Conn) {
	value, flag := lim.Most, "--max-connections"
	switch limit {
	case "address":
		value, flag = lim.MostOfPeer, "--max-connections-of-address"
	case "handshakes":
		value, flag = lim.HandshakesOfPeer, "--max-handshakes-of-address"
	}
	lim.paced.tell(slog.LevelWarn, message, limit,
		slog.String("peer.address", conn.RemoteAddr().String()), slog.String("limit", limit),
		slog.Int("value", value), slog.String("flag", flag))
}

// enter counts a connection until it is closed. If a limit is reached, full is its name, and out is
// a connection that is counted no longer and has to be closed. If there is none that makes room,
// the new one is not counted.
func (lim *ConnLimiter) enter(c *countedConn) (full string, out *countedConn) {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	switch address := c.from.address(); {
	case address != "" && lim.ofPeer[address] >= lim.MostOfPeer:
		full, out = "address", lim.strangers.part(c.from).overdue()
	case lim.open >= lim.Most:
		full, out = "all", lim.strangers.yields(c.from)
	}
	if full != "" && out == nil {
		return full, nil
	}
	if out != nil {
		lim.leave(out)
	}
	lim.open++
	lim.ofPeer[c.from.address()]++
	if lim.credentials {
		lim.strangers.add(c)
	}
	return full, out
}

// leave counts a connection no longer. The caller holds the lock.
func (lim *ConnLimiter) leave(c *countedConn) {
	if !c.left {
		c.left = true
		lim.open--
		decrement(lim.ofPeer, c.from.address())
		remove(c)
	}
}

// decrement subtracts one from the count of a peer, and removes the peer if its count is then 0.
func decrement(counts map[string]int, peer string) {
	if counts[peer]--; counts[peer] == 0 {
		delete(counts, peer)
	}
}

var errHandshakes = errors.New("too many handshakes from this address are under way")

// Handshakes returns credentials that limit how many handshakes one address may have under way.
func (lim *ConnLimiter) Handshakes(of credentials.TransportCredentials) credentials.TransportCredentials {
	return handshakes{of, lim}
}

// handshakes are credentials that limit the handshakes of each address, because one handshake may
// cost more than all later traffic of the caller.
type handshakes struct {
	credentials.TransportCredentials
	limiter *ConnLimiter
}

// ServerHandshake fails, so that the connection is closed, if its address has too many handshakes
// under way.
func (h handshakes) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	peer := addressKey(conn.RemoteAddr())
	if !h.limiter.begin(peer) {
		h.limiter.refused.WithLabelValues("handshakes").Inc()
		h.limiter.tell("connection closed: too many TLS handshakes are under way", "handshakes", conn)
		return nil, nil, errHandshakes
	}
	defer h.limiter.end(peer)
	secure, info, err := h.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		h.limiter.HandshakeFailed(conn.RemoteAddr().String(), err.Error())
	}
	return secure, callerInfo(info, conn), err
}

// Clone implements credentials.TransportCredentials; the copy shares the limiter.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.limiter}
}

func (lim *ConnLimiter) begin(peer string) bool {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	if peer != "" && lim.handshakes[peer] >= lim.HandshakesOfPeer {
		return false
	}
	lim.handshakes[peer]++
	return true
}

func (lim *ConnLimiter) end(peer string) {
	lim.mu.Lock()
	defer lim.mu.Unlock()
	decrement(lim.handshakes, peer)
}
