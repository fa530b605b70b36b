package preauth

import (
	"net"
	"testing"
)

// X5: the addresses of one IPv6 network of 64 bits count as one, because one host can use all of
// them. An IPv4 address is the same if it is written as one of IPv6.
func TestAddressKey(t *testing.T) {
	t.Attr("rules", "X5")
	for _, tt := range []struct {
		addr net.Addr
		want string
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 7}, "192.0.2.1"},
		{&net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 8}, "192.0.2.1"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8:0:1::1")}, "2001:db8:0:1::/64"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8:0:1:ffff:ffff:ffff:ffff")}, "2001:db8:0:1::/64"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8:0:2::1")}, "2001:db8:0:2::/64"},
		{&net.UnixAddr{Name: "socket"}, ""},
	} {
		if got := addressKey(tt.addr); got != tt.want {
			t.Errorf("%v counts as %q, want %q", tt.addr, got, tt.want)
		}
	}
}
