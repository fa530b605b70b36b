package preauth

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// connFrom returns a connection that seems to come from ip, and its other end.
func connFrom(t *testing.T, ip string) (conn, other net.Conn) {
	t.Helper()
	conn, other = net.Pipe()
	t.Cleanup(func() { _, _ = conn.Close(), other.Close() })
	return connWithAddr{conn, &net.TCPAddr{IP: net.ParseIP(ip)}}, other
}

type connWithAddr struct {
	net.Conn
	addr net.Addr
}

func (c connWithAddr) RemoteAddr() net.Addr { return c.addr }

// connListener is a listener that accepts the connections of the channel, in order.
type connListener chan net.Conn

func (l connListener) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (connListener) Close() error   { return nil }
func (connListener) Addr() net.Addr { return nil }

// X5: the number of open connections is limited in total and for each address. A connection over
// the limit is closed. A closed connection makes room for exactly one other, even if it is closed
// twice.
func TestConnectionsAreBounded(t *testing.T) {
	t.Attr("rules", "X5")
	d := NewConnLimiter(Connections{Most: 3, MostOfPeer: 2}, false, slog.New(slog.DiscardHandler))
	for _, step := range []struct {
		from []string // in the order in which they come
		in   int      // the index of the one that is accepted
	}{
		{[]string{"192.0.2.1"}, 0},
		{[]string{"192.0.2.1"}, 0},
		{[]string{"192.0.2.1", "192.0.2.1", "2001:db8::1"}, 2},
	} {
		lis := make(connListener, len(step.from))
		var others []net.Conn
		for _, ip := range step.from {
			conn, other := connFrom(t, ip)
			lis <- conn
			others = append(others, other)
		}
		if _, err := d.Listener(lis).Accept(); err != nil {
			t.Fatal(err)
		}
		for _, other := range others[:step.in] {
			if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("a connection over the limit reads %v, want EOF", err)
			}
		}
	}
	full := make(connListener, 3)
	first, _ := connFrom(t, "198.51.100.1")
	full <- first
	close(full)
	if _, err := d.Listener(full).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a fourth connection with a limit of three was accepted (%v)", err)
	}
	if got := refusals(t, d); got["address"] != 2 || got["all"] != 1 {
		t.Errorf("the metric counts %v, want 2 refused by the limit of an address and 1 by that of all", got)
	}

	d = NewConnLimiter(Connections{Most: 1, MostOfPeer: 1}, false, slog.New(slog.DiscardHandler))
	for range 3 {
		lis := make(connListener, 1)
		conn, _ := connFrom(t, "192.0.2.1")
		lis <- conn
		in, err := d.Listener(lis).Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = in.Close(), in.Close()
	}
	if d.open != 0 || len(d.ofPeer) != 0 {
		t.Errorf("%d connections are counted, by address %v, want none", d.open, d.ofPeer)
	}
}

// X5: the log names the limit and the address of a connection that is closed because there are too
// many, since its caller sees only that it ends. Once in ten seconds for each limit is enough:
// anybody can cause that at any rate.
func TestConnectionsOverTheLimitsAreInTheLog(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := NewConnLimiter(Connections{Most: 2, MostOfPeer: 1, HandshakesOfPeer: 0}, true,
			slog.New(slog.NewTextHandler(&log, nil)))
		lis := make(connListener, 1)
		go func() {
			for {
				if _, err := d.Listener(lis).Accept(); err != nil {
					return
				}
			}
		}()
		come := func(ip string, lines ...string) {
			t.Helper()
			log.Reset()
			conn, _ := connFrom(t, ip)
			lis <- conn
			synctest.Wait()
			if got := log.String(); len(lines) == 0 && got != "" || strings.Count(got, "\n") > 1 {
				t.Errorf("%s: the log has %q, want %q", ip, got, lines)
			}
			for _, want := range lines {
				if !strings.Contains(log.String(), want) {
					t.Errorf("%s: the log has %q, want %q", ip, &log, want)
				}
			}
		}
		come("192.0.2.1")
		const refused, evicted = "connection closed: there are too many",
			"connection without a valid credential closed: there are too many"
		come("192.0.2.1", "level=WARN", refused, "peer.address=192.0.2.1:",
			"limit=address", "value=1", "flag=--max-connections-of-address")
		come("192.0.2.1")
		come("198.51.100.1")
		come("203.0.113.1", "level=WARN", refused, "peer.address=203.0.113.1:", "limit=all", "value=2", "flag=--max-connections")
		time.Sleep(tellInterval)
		come("203.0.113.1", "level=WARN", evicted, "peer.address=192.0.2.1:", "limit=all", "value=2")
		come("203.0.113.1", "level=WARN", refused, "peer.address=203.0.113.1:", "limit=address", "left_out=1")
		close(lis)

		log.Reset()
		conn, _ := connFrom(t, "192.0.2.1")
		_, _, err := d.Handshakes(insecure.NewCredentials()).ServerHandshake(conn)
		if !errors.Is(err, errHandshakes) || !strings.Contains(log.String(), "peer.address=192.0.2.1:0 limit=handshakes value=0 flag=--max-handshakes-of-address") {
			t.Errorf("too many handshakes: %v, the log has %q, want a line that names the limit", err, &log)
		}
	})
}

// X5: a connection that does not use TCP, such as that of a unix socket, has no address. So no
// limit of an address applies to it or to its handshake.
func TestConnectionsWithoutAddress(t *testing.T) {
	t.Attr("rules", "X5")
	const mostHandshakes = 3
	d := NewConnLimiter(Connections{Most: mostHandshakes + 1, MostOfPeer: 1, HandshakesOfPeer: mostHandshakes}, false,
		slog.New(slog.DiscardHandler))
	lis := make(connListener, mostHandshakes+2)
	for range cap(lis) {
		conn, other := net.Pipe()
		defer func() { _, _ = conn.Close(), other.Close() }()
		lis <- conn
	}
	close(lis)
	for i := range mostHandshakes + 1 {
		conn, err := d.Listener(lis).Accept()
		if err != nil || !d.begin(addressKey(conn.RemoteAddr())) {
			t.Fatalf("connection %d or its handshake was refused (%v), want that no limit of an address applies", i, err)
		}
	}
	if _, err := d.Listener(lis).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("one connection more than the total was accepted (%v)", err)
	}
}

// If the process has too many open files, Accept returns the error, so that the servers try again
// later; a metric counts it, and the log says what to do.
func TestTooManyOpenFiles(t *testing.T) {
	for err, counted := range map[error]bool{syscall.EMFILE: true, syscall.ENFILE: true, syscall.ECONNABORTED: false} {
		var log bytes.Buffer
		d := NewConnLimiter(Connections{Most: 1, MostOfPeer: 1}, false, slog.New(slog.NewTextHandler(&log, nil)))
		_, got := d.Listener(failingListener{err: &net.OpError{Op: "accept", Err: err}}).Accept()
		if n := refusals(t, d)["files"]; !errors.Is(got, err) || (n == 1) != counted || strings.Contains(log.String(), "ulimit") != counted {
			t.Errorf("%v: Accept returns %v, the metric is %v, the log is %q; want it counted and logged: %v",
				err, got, n, log.String(), counted)
		}
	}
}

// refusals returns the metric of the refused connections, by limit.
func refusals(t *testing.T, d *ConnLimiter) map[string]float64 {
	t.Helper()
	return counts(t, d.Refused())
}

// evictions returns the metric of the connections that made room for others, by limit.
func evictions(t *testing.T, d *ConnLimiter) map[string]float64 {
	t.Helper()
	return counts(t, d.Evicted())
}

func counts(t *testing.T, of prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(of)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d metrics (%v), want one", len(families), err)
	}
	counts := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	return counts
}

// failingListener accepts nothing.
type failingListener struct {
	net.Listener
	err error
}

func (l failingListener) Accept() (net.Conn, error) { return nil, l.err }

// A connection whose Close fails does not count any more either.
func TestConnectionWhoseCloseFailsIsNotCounted(t *testing.T) {
	d := NewConnLimiter(Connections{Most: 1, MostOfPeer: 1}, false, slog.New(slog.DiscardHandler))
	lis := make(connListener, 1)
	conn, _ := connFrom(t, "192.0.2.1")
	lis <- failingClose{conn}
	in, err := d.Listener(lis).Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); !errors.Is(err, net.ErrWriteToConnected) || d.open != 0 {
		t.Errorf("Close = %v, %d connections are counted; want the error of the connection, and none", err, d.open)
	}
}

type failingClose struct{ net.Conn }

func (failingClose) Close() error { return net.ErrWriteToConnected }

func TestConnectionsFillAndValidate(t *testing.T) {
	for _, tt := range []struct {
		set, filled Connections
		ok          bool
	}{
		{Connections{}, Connections{DefaultConnections, DefaultConnections / 2, DefaultHandshakes}, true},
		{Connections{Most: 1}, Connections{1, 1, DefaultHandshakes}, true},
		{Connections{Most: 9}, Connections{9, 4, DefaultHandshakes}, true},
		{Connections{Most: 9, MostOfPeer: 9}, Connections{9, 9, DefaultHandshakes}, true},
		{Connections{Most: 9, MostOfPeer: 10}, Connections{9, 10, DefaultHandshakes}, false},
		{Connections{Most: 9, MostOfPeer: -1}, Connections{9, -1, DefaultHandshakes}, false},
		{Connections{Most: -1}, Connections{-1, 1, DefaultHandshakes}, false},
		{Connections{Most: -1, MostOfPeer: -1}, Connections{-1, -1, DefaultHandshakes}, false},
		{Connections{Most: 9, HandshakesOfPeer: 1000}, Connections{9, 4, 1000}, true},
		{Connections{Most: 9, HandshakesOfPeer: -1}, Connections{9, 4, -1}, false},
	} {
		c := tt.set
		c.Fill()
		if err := c.Validate(); c != tt.filled || (err == nil) != tt.ok {
			t.Errorf("%+v is filled to %+v with the error %v, want %+v, valid: %v", tt.set, c, err, tt.filled, tt.ok)
		}
	}
}

// slowHandshake waits until end is closed.
type slowHandshake struct {
	credentials.TransportCredentials
	end chan struct{}
}

func (s slowHandshake) Clone() credentials.TransportCredentials { return s }

func (s slowHandshake) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	<-s.end
	return conn, nil, nil
}

// failingHandshake fails with err.
type failingHandshake struct {
	credentials.TransportCredentials
	err error
}

func (b failingHandshake) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, b.err
}

// X1: the log and a metric tell of failed TLS handshakes, because the caller may see only that its
// connection ends: at once, then once in ten seconds for each reason, and of all at level debug. A
// connection that is closed before its first byte, as by a port check, counts as none.
func TestHandshakesThatFailAreInTheLog(t *testing.T) {
	t.Attr("rules", "X1 X5")
	untrusted := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	none, other := errors.New("tls: client didn't provide a certificate"), errors.New("tls: no cipher suite")
	for level, all := range map[slog.Level]int{slog.LevelInfo: 0, slog.LevelDebug: 2 * 99} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			d := NewConnLimiter(Connections{Most: 1, MostOfPeer: 1, HandshakesOfPeer: 1}, false,
				slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level})))
			fail := func(err error, lines ...string) {
				t.Helper()
				log.Reset()
				conn, _ := connFrom(t, "192.0.2.1")
				if _, _, got := (handshakes{failingHandshake{insecure.NewCredentials(), err}, d}).ServerHandshake(conn); !errors.Is(got, err) {
					t.Errorf("the handshake returns %v, want %v", got, err)
				}
				if len(lines) == 0 && log.Len() > 0 {
					t.Errorf("%v: the log has %q, want nothing", err, &log)
				}
				for _, want := range lines {
					if !strings.Contains(log.String(), want) {
						t.Errorf("%v: the log has %q, want %q", err, &log, want)
					}
				}
			}
			fail(io.EOF)
			fail(untrusted, "level=WARN", "peer.address=192.0.2.1:", "reason=client_certificate", "unknown authority")
			fail(other, "level=INFO", "peer.address=192.0.2.1:", "reason=other", "no cipher suite")
			log.Reset()
			for range 99 {
				d.HandshakeFailed("192.0.2.2:1", none.Error())
				d.HandshakeFailed("192.0.2.2:1", other.Error())
			}
			if n := strings.Count(log.String(), "level=DEBUG"); n != all || strings.Count(log.String(), "\n") != all {
				t.Errorf("at %v the log has %d lines of a flood, want %d: %s", level, n, all, &log)
			}
			time.Sleep(tellInterval)
			fail(none, "level=WARN", "left_out=99")
			fail(other, "level=INFO", "left_out=99")
			if got, want := counts(t, d.HandshakesFailed()), map[string]float64{badClientCertificate: 101, otherFailure: 101}; !maps.Equal(got, want) {
				t.Errorf("the metric counts %v, want %v", got, want)
			}
		})
	}
}

// X5: the number of TLS handshakes that one address may have at the same time is limited. Other
// addresses are not affected.
func TestHandshakesAreBounded(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		const mostHandshakes = 11
		d := NewConnLimiter(Connections{Most: 1000, MostOfPeer: 1000, HandshakesOfPeer: mostHandshakes}, false,
			slog.New(slog.DiscardHandler))
		end := make(chan struct{})
		slow := d.Handshakes(slowHandshake{insecure.NewCredentials(), end}).Clone() // the copy has the same limits
		done := make(chan error, 3*mostHandshakes)
		begin := func(ip string) {
			conn, _ := connFrom(t, ip)
			go func() {
				_, _, err := slow.ServerHandshake(conn)
				done <- err
			}()
		}
		for range mostHandshakes + 7 {
			begin("192.0.2.1")
		}
		begin("192.0.2.2")
		synctest.Wait()
		if len(done) != 7 {
			t.Fatalf("%d handshakes were refused, want 7", len(done))
		}
		if n := refusals(t, d)["handshakes"]; n != 7 {
			t.Errorf("the metric counts %v refused handshakes, want 7", n)
		}
		for range 7 {
			if err := <-done; !errors.Is(err, errHandshakes) {
				t.Error(err)
			}
		}
		close(end)
		synctest.Wait()
		if len(done) != mostHandshakes+1 || len(d.handshakes) != 0 {
			t.Errorf("%d handshakes have ended and %v are counted, want %d and none", len(done), d.handshakes, mostHandshakes+1)
		}
	})
}
