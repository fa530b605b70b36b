package porch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
)

// Connections bounds what is open before anybody has said who calls (X5). A field that is 0 takes its default.
type Connections struct {
	// Most are open at once, on both listeners together; further ones are closed at once. Default: DefaultConnections.
	Most int
	// MostOfPeer are open at once from one address, or from one network of 64 bits of IPv6. Default: half of Most.
	MostOfPeer int
}

// DefaultConnections is the default of Connections.Most.
const DefaultConnections = 50_000

// mostHandshakes of TLS are those that one address has under way; each ends within the time that grpc gives a connection to begin.
const mostHandshakes = 100

// Fill sets what was left zero.
func (c *Connections) Fill() {
	c.Most = cmp.Or(c.Most, DefaultConnections)
	c.MostOfPeer = cmp.Or(c.MostOfPeer, max(c.Most/2, 1))
}

// Validate reports numbers that are out of their range.
func (c *Connections) Validate() error {
	if c.Most < 1 || c.MostOfPeer < 1 || c.MostOfPeer > c.Most {
		return fmt.Errorf("%d connections may be open, of one address %d; the least is 1, and the second is no more than the first", c.Most, c.MostOfPeer)
	}
	return nil
}

// Doorkeeper counts connections, and handshakes that are under way. It is safe for concurrent use.
type Doorkeeper struct {
	Connections
	turnedAway *prometheus.CounterVec
	log        *slog.Logger

	mu         sync.Mutex
	open       int
	ofPeer     map[string]int // by addressKey
	handshakes map[string]int
}

// NewDoorkeeper makes a doorkeeper of settings that are filled and valid.
func NewDoorkeeper(c Connections, log *slog.Logger) *Doorkeeper {
	turnedAway := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lessor_connections_refused_total", Help: "Connections that were closed since there were too many, by the limit.",
	}, []string{"limit"})
	for _, limit := range []string{"all", "address", "handshakes", "files"} {
		turnedAway.WithLabelValues(limit)
	}
	return &Doorkeeper{Connections: c, turnedAway: turnedAway, log: log, ofPeer: map[string]int{}, handshakes: map[string]int{}}
}

// Refused counts the connections that were closed since there were too many.
func (d *Doorkeeper) Refused() prometheus.Collector { return d.turnedAway }

// Listener lets in as many as there may be.
func (d *Doorkeeper) Listener(lis net.Listener) net.Listener { return doorListener{lis, d} }

type doorListener struct {
	net.Listener
	door *Doorkeeper
}

// Accept waits for a connection for which there is room.
func (l doorListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			// The servers try again, at most a second later.
			l.door.turnedAway.WithLabelValues("files").Inc()
			l.door.log.Warn("no connection can be taken: too many files are open; raise the limit (ulimit -n, LimitNOFILE)", "error", err)
		}
		if err != nil {
			return nil, err
		}
		leave, full := l.door.enter(addressKey(conn.RemoteAddr()))
		if full == "" {
			return (&countedConn{Conn: conn, leave: leave}).lean(), nil
		}
		l.door.turnedAway.WithLabelValues(full).Inc()
		_ = conn.Close() // nobody has said anything yet
	}
}

// enter counts a connection; full names the limit where there is no room for it.
func (d *Doorkeeper) enter(peer string) (leave func(), full string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.open >= d.Most:
		return nil, "all"
	case peer != "" && d.ofPeer[peer] >= d.MostOfPeer:
		return nil, "address"
	}
	d.open++
	d.ofPeer[peer]++
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.open--
		less(d.ofPeer, peer)
	}), ""
}

// less counts one less of a peer.
func less(counts map[string]int, peer string) {
	if counts[peer]--; counts[peer] == 0 {
		delete(counts, peer)
	}
}

// countedConn is counted until it is closed.
type countedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection; it may be called again.
func (c *countedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

var errHandshakes = errors.New("too many handshakes from this address are under way")

// Handshakes bounds the handshakes of the credentials.
func (d *Doorkeeper) Handshakes(of credentials.TransportCredentials) credentials.TransportCredentials {
	return handshakes{of, d}
}

// handshakes are credentials whose handshakes are bounded by address: one may cost more than all that a caller says later.
type handshakes struct {
	credentials.TransportCredentials
	door *Doorkeeper
}

// ServerHandshake closes the connection where too many of its address have not come so far.
func (h handshakes) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	peer := addressKey(conn.RemoteAddr())
	if !h.door.begin(peer) {
		h.door.turnedAway.WithLabelValues("handshakes").Inc()
		return nil, nil, errHandshakes
	}
	defer h.door.end(peer)
	secure, info, err := h.TransportCredentials.ServerHandshake(conn)
	if err != nil && !errors.Is(err, io.EOF) { // who hangs up only looks whether somebody listens; anybody can have the others at any pace
		h.door.log.Debug("TLS handshake failed", "peer.address", conn.RemoteAddr().String(), "error", err)
	}
	return secure, info, err
}

// Clone is for a server that changes its credentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.door}
}

func (d *Doorkeeper) begin(peer string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if peer != "" && d.handshakes[peer] >= mostHandshakes {
		return false
	}
	d.handshakes[peer]++
	return true
}

func (d *Doorkeeper) end(peer string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	less(d.handshakes, peer)
}
