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

// addressKey returns the key under which connections and calls from an address are counted. For IPv6 the key is the /64 network, because one
// host can use any address of its network. The key is empty if addr is not a TCP address.
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
