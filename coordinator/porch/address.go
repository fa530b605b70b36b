package porch

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc/peer"
)

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
