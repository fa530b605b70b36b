package preauth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// guests opens connections through a limiter with this configuration, whose callers must show
// credentials.
type guests struct {
	t       *testing.T
	limiter *ConnLimiter
}

func newGuests(t *testing.T, c Connections) *guests {
	return &guests{t, NewConnLimiter(c, true, slog.New(slog.DiscardHandler))}
}

// guest is a connection that was accepted.
type guest struct {
	net.Conn
	other net.Conn // of the caller
}

// knock opens a connection from ip. It returns nil if the connection is refused.
func (g *guests) knock(ip string) *guest {
	g.t.Helper()
	conn, other := connFrom(g.t, ip)
	lis := make(connListener, 1)
	lis <- conn
	close(lis)
	in, err := g.limiter.Listener(lis).Accept()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return &guest{in, other}
}

// enter opens a connection from ip, which must be accepted.
func (g *guests) enter(ip string) *guest {
	g.t.Helper()
	in := g.knock(ip)
	if in == nil {
		g.t.Fatalf("a connection from %s is refused", ip)
	}
	return in
}

// fill opens n connections from each ip.
func (g *guests) fill(n int, ips ...string) (all []*guest) {
	g.t.Helper()
	for range n {
		for _, ip := range ips {
			all = append(all, g.enter(ip))
		}
	}
	return all
}

// open reports whether the coordinator has left the connection open.
func (c *guest) open() bool {
	_ = c.other.SetReadDeadline(time.Now())
	_, err := c.other.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// ways are the ways in which a call or a request knows its connection.
var ways = map[string]func(t *testing.T, conn net.Conn) context.Context{
	"gRPC": func(t *testing.T, conn net.Conn) context.Context {
		_, info, err := Plain(insecure.NewCredentials()).Clone().ServerHandshake(conn)
		if err != nil {
			t.Fatal(err)
		}
		return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
	},
	"gRPC over TLS": func(t *testing.T, conn net.Conn) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: callerInfo(credentials.TLSInfo{}, conn)})
	},
	"HTTP": func(t *testing.T, conn net.Conn) context.Context { return WithConn(t.Context(), conn) },
	"HTTP over TLS": func(t *testing.T, conn net.Conn) context.Context {
		return WithConn(t.Context(), tls.Server(conn, &tls.Config{}))
	},
}

// closed returns the indexes of the connections that are closed.
func closed(all []*guest) (at []int) {
	for i, c := range all {
		if !c.open() {
			at = append(at, i)
		}
	}
	return at
}

// X5: a flood that fills the table from two addresses keeps nobody else out, however fast it
// replaces its connections: an honest caller gets in at once, in the place of the oldest connection
// of the flood, and stays.
func TestFloodMakesRoom(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		g := newGuests(t, Connections{Most: 8, MostOfPeer: 4})
		flood := g.fill(4, "192.0.2.1", "198.51.100.1")
		honest := g.enter("203.0.113.1")
		if at := closed(flood); !slices.Equal(at, []int{0}) && !slices.Equal(at, []int{1}) {
			t.Errorf("the connections %v of the flood are closed, want the oldest of one address", at)
		}
		for range 3 {
			for range 100 {
				for _, ip := range []string{"192.0.2.1", "198.51.100.1"} {
					if c := g.knock(ip); c != nil {
						flood = append(flood, c)
					}
				}
			}
			if n := len(flood) - len(closed(flood)); n != 7 {
				t.Errorf("%d connections of the flood are open, want 7", n)
			}
			if !honest.open() {
				t.Fatal("the flood has thrown out the honest caller")
			}
			time.Sleep(introduction)
		}
		if got := evictions(t, g.limiter); got["all"] == 0 || got["address"] == 0 {
			t.Errorf("the metric counts the evictions %v, want some by each limit", got)
		}
	})
}

// X5: a connection on which a valid credential was shown never makes room.
func TestShownCredentialKeepsThePlace(t *testing.T) {
	t.Attr("rules", "X5")
	for what, way := range ways {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				show := func(all ...*guest) {
					for _, c := range all {
						CredentialShown(way(t, c.Conn))
					}
				}
				g := newGuests(t, Connections{Most: 4, MostOfPeer: 2})
				known := g.fill(2, "192.0.2.1")
				show(known...)
				strangers := g.fill(2, "198.51.100.1")
				time.Sleep(2 * introduction)
				if g.knock("192.0.2.1") != nil {
					t.Error("a connection above the limit of its address was accepted, although the others have shown a credential")
				}
				show(g.fill(2, "203.0.113.1")...)
				if g.knock("203.0.113.2") != nil {
					t.Error("a connection above the limit was accepted, although all others have shown a credential")
				}
				if len(closed(known)) != 0 || len(closed(strangers)) != 2 {
					t.Errorf("connections %v with a credential and %v without are closed, want none of the former and all of the latter", closed(known), closed(strangers))
				}
				if got := refusals(t, g.limiter); got["address"] != 1 || got["all"] != 1 {
					t.Errorf("the metric counts the refusals %v, want 1 by each limit", got)
				}
			})
		})
	}
}

// X5: a flood is told by the network that its addresses are in, and within that network by the
// address.
func TestFloodOfANetworkMakesRoom(t *testing.T) {
	t.Attr("rules", "X5")
	for what, tt := range map[string]struct {
		flood  func(i int) string
		honest []string
	}{
		"a network of IPv4": {numbered("192.0.2.%d"), []string{"192.0.3.1", "192.0.3.1", "198.51.100.1"}},
		"a network of IPv6": {numbered("2001:db8:1:%d::1"), []string{"2001:db8:2:1::1", "2001:db8:2:1::2", "2001:db8:3::1"}},
		"an IPv4 address":   {func(int) string { return "192.0.2.1" }, []string{"192.0.2.2", "192.0.2.2", "192.0.2.3"}},
		"an IPv6 address":   {numbered("2001:db8::%d"), []string{"2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:2::1"}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most = 20
				g := newGuests(t, Connections{Most: most, MostOfPeer: most})
				var flood, honest []*guest
				for i := range most {
					flood = append(flood, g.enter(tt.flood(i)))
				}
				for _, ip := range tt.honest {
					honest = append(honest, g.enter(ip))
				}
				for i := range 5 * most {
					g.knock(tt.flood(i))
				}
				if len(closed(flood)) != len(honest) || len(closed(honest)) != 0 {
					t.Errorf("connections %v of the flood and %v of others are closed, want %d and none",
						closed(flood), closed(honest), len(honest))
				}
			})
		})
	}
}

// numbered returns the addresses that have a number in this form.
func numbered(form string) func(i int) string {
	return func(i int) string { return fmt.Sprintf(form, i) }
}

// X5: newcomers do not throw each other out before they could show a credential; or else none would
// get in where only one place is left.
func TestNewcomersHaveTime(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		g := newGuests(t, Connections{Most: 4, MostOfPeer: 4})
		for _, c := range g.fill(1, "192.0.2.1", "192.0.2.2", "198.51.100.1") {
			CredentialShown(WithConn(t.Context(), c.Conn))
		}
		first := g.enter("203.0.113.1")
		time.Sleep(introduction - 1)
		for _, ip := range []string{"203.0.113.1", "203.0.113.2", "198.51.100.1", "2001:db8::1"} {
			if g.knock(ip) != nil {
				t.Errorf("a newcomer from %s has taken the place of another one", ip)
			}
		}
		if !first.open() {
			t.Error("the first newcomer is thrown out")
		}
		time.Sleep(time.Nanosecond)
		g.enter("203.0.113.2")
		if first.open() {
			t.Error("a newcomer that shows no credential in time does not make room")
		}
	})
}

// X5: there are never more connections than allowed, not even while one that makes room is being
// closed.
func TestOneThatMakesRoomIsNotCounted(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		g := newGuests(t, Connections{Most: 1, MostOfPeer: 1})
		conn, _ := connFrom(t, "192.0.2.1")
		counted := 0
		lis := make(connListener, 1)
		lis <- closing{conn, func() { counted = g.limiter.open }}
		if _, err := g.limiter.Listener(lis).Accept(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(introduction)
		g.enter("192.0.2.2")
		if counted != 1 {
			t.Errorf("%d connections are counted while one is being closed, want 1", counted)
		}
	})
}

// closing calls begun when it is being closed.
type closing struct {
	net.Conn
	begun func()
}

func (c closing) Close() error {
	c.begun()
	return c.Conn.Close()
}

// If no credentials are required, no connection makes room for another.
func TestWithoutCredentialsNobodyMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuests(t, Connections{Most: 3, MostOfPeer: 2})
		g.limiter.credentials = false
		all := g.fill(1, "192.0.2.1", "192.0.2.1", "198.51.100.1")
		time.Sleep(time.Hour)
		if g.knock("192.0.2.1") != nil || g.knock("203.0.113.1") != nil || len(closed(all)) != 0 {
			t.Errorf("a connection above a limit is accepted, or %v are closed", closed(all))
		}
	})
}

// Whatever comes and goes: the connection that makes room is the one that a plain search finds, and
// nothing is kept of connections that are gone.
func TestCrowdsAgreeWithASearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		var s crowd
		var all []*countedConn // the oldest first
		leave := func(c *countedConn) {
			remove(c)
			all = slices.DeleteFunc(all, func(other *countedConn) bool { return other == c })
		}
		for range 5_000 {
			time.Sleep(time.Nanosecond) // each begins at a time of its own
			switch r.IntN(4) {
			case 0:
				time.Sleep(time.Duration(r.Int64N(int64(introduction / time.Duration(1+r.IntN(20))))))
			case 1:
				if len(all) > 0 {
					leave(all[r.IntN(len(all))])
				}
			default:
				from := originOf(&net.TCPAddr{IP: net.IPv4(10, 0, byte(r.IntN(1+r.IntN(4))), byte(r.IntN(1+r.IntN(4))))})
				got, want := s.yields(from), searchAll(all, from)
				if own, wantOwn := s.part(from).overdue(), searchAddress(all, from); own != wantOwn || got != want {
					t.Fatalf("seed %d: %v makes room for one from %v, and %v for one from its own address; want %v, and %v", seed, got, from, own, want, wantOwn)
				}
				if got != nil && r.IntN(40) < len(all) {
					leave(got)
				}
				c := &countedConn{from: from, began: time.Now()}
				s.add(c)
				all = append(all, c)
			}
		}
		for len(all) > 0 {
			leave(all[0])
		}
		if s.size != 0 || len(s.parts) != 0 || len(s.named) != 0 {
			t.Errorf("seed %d: %d connections and %d networks are left when all connections are gone", seed, s.size, len(s.named))
		}
	})
}

// searchAddress returns the connection that makes room for another one from its own address.
func searchAddress(all []*countedConn, address origin) *countedConn {
	for _, c := range all {
		if c.from == address && time.Since(c.began) >= introduction {
			return c
		}
	}
	return nil
}

// searchAll returns the connection that makes room for one from anywhere.
func searchAll(all []*countedConn, to origin) *countedConn {
	if first := oldestOfLargest(all, 0); first == nil || time.Since(first.began) >= introduction {
		return first
	}
	for level, name := range to {
		parts, largest := byName(all, level)
		if largest > len(parts[name])+1 {
			return oldestOfLargest(all, level)
		}
		all = parts[name]
	}
	return nil
}

// oldestOfLargest returns the oldest connection of the largest address of the largest network, or
// of the one whose is older if two are equal. Level 0 compares networks, level 1 addresses.
func oldestOfLargest(all []*countedConn, level int) (oldest *countedConn) {
	if level == len(origin{}) {
		return all[0]
	}
	parts, largest := byName(all, level)
	for _, part := range parts {
		if len(part) == largest {
			if c := oldestOfLargest(part, level+1); oldest == nil || c.began.Before(oldest.began) {
				oldest = c
			}
		}
	}
	return oldest
}

func byName(all []*countedConn, level int) (parts map[string][]*countedConn, largest int) {
	parts = map[string][]*countedConn{}
	for _, c := range all {
		parts[c.from[level]] = append(parts[c.from[level]], c)
		largest = max(largest, len(parts[c.from[level]]))
	}
	return parts, largest
}
