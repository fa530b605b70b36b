package preauth

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc/peer"
)

// addressOf returns the key by which the calls of a peer are counted, see addressKey.
func addressOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	return addressKey(p.Addr)
}

// addressKey returns the key under which connections and calls from an address are counted. For
// IPv6 the key is the /64 network, because one host can use any address of its network. The key is
// empty if addr is not a TCP address.
func addressKey(addr net.Addr) string {
	ip := ipOf(addr)
	switch {
	case !ip.IsValid():
		return ""
	case ip.Is6():
		return prefix(ip, 64)
	}
	return ip.String()
}

// networkKey returns the key of what one owner may have, which is more than addressKey says: of
// IPv4 the /24 network, of IPv6 the /48 network. The key is empty if addr is not a TCP address.
func networkKey(addr net.Addr) string {
	ip := ipOf(addr)
	switch {
	case !ip.IsValid():
		return ""
	case ip.Is6():
		return prefix(ip, 48)
	}
	return prefix(ip, 24)
}

// ipOf returns the IP address of a TCP address, and one that is not valid for any other address.
func ipOf(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip, _ := netip.AddrFromSlice(tcp.IP)
	return ip.Unmap()
}

func prefix(ip netip.Addr, bits int) string {
	network, _ := ip.Prefix(bits) // never fails
	return network.String()
}

// origin is where a connection comes from: its networkKey and its addressKey.
type origin [2]string

func originOf(addr net.Addr) origin { return origin{networkKey(addr), addressKey(addr)} }

func (o origin) address() string { return o[1] }
