//go:build faults && linux

package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// islands are two network namespaces beside that of the test: one of the workers, and a router
// between them and the coordinator, which can drop what goes either way, without a word to either
// side, as a cut cable or a firewall does.
//
//	the test, coordinator --- router, workers' side --- workers
type islands struct {
	t               *testing.T
	router, far     string // names of the namespaces
	coordinator     netip.Addr
	workers         netip.Addr
	toward, outward netip.Addr // of the router, on the side of the coordinator and of the workers
}

// newIslands skips the test where there are no namespaces, or nobody may make them.
func newIslands(t *testing.T) *islands {
	t.Helper()
	pid := os.Getpid()
	n := &islands{
		t: t, router: fmt.Sprintf("lessor-r-%d", pid), far: fmt.Sprintf("lessor-w-%d", pid),
		coordinator: netip.AddrFrom4([4]byte{10, 203, byte(pid), 1}), toward: netip.AddrFrom4([4]byte{10, 203, byte(pid), 2}),
		workers: netip.AddrFrom4([4]byte{10, 204, byte(pid), 1}), outward: netip.AddrFrom4([4]byte{10, 204, byte(pid), 2}),
	}
	if out, err := exec.Command("ip", "netns", "add", n.router).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no network namespaces: %v: %s", err, out)
	}
	t.Cleanup(func() { n.ip("netns", "del", n.router) })
	n.ip("netns", "add", n.far)
	t.Cleanup(func() { n.ip("netns", "del", n.far) })
	near, middle := fmt.Sprintf("lsr%dn", pid), fmt.Sprintf("lsr%dm", pid)
	n.ip("link", "add", near, "type", "veth", "peer", "name", "near", "netns", n.router)
	n.ip("-n", n.router, "link", "add", "far", "type", "veth", "peer", "name", middle, "netns", n.far)
	n.ip("addr", "add", n.coordinator.String()+"/24", "dev", near)
	n.ip("-n", n.router, "addr", "add", n.toward.String()+"/24", "dev", "near")
	n.ip("-n", n.router, "addr", "add", n.outward.String()+"/24", "dev", "far")
	n.ip("-n", n.far, "addr", "add", n.workers.String()+"/24", "dev", middle)
	n.ip("link", "set", near, "up")
	n.ip("-n", n.router, "link", "set", "near", "up")
	n.ip("-n", n.router, "link", "set", "far", "up")
	n.ip("-n", n.far, "link", "set", middle, "up")
	n.ip("netns", "exec", n.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	n.ip("route", "add", n.workers.String()+"/32", "via", n.toward.String())
	n.ip("-n", n.far, "route", "add", "default", "via", n.outward.String())
	return n
}

// ip runs a command of iproute2.
func (n *islands) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// silence lets the router drop what goes to these addresses; mend ends that.
func (n *islands) silence(to ...netip.Addr) (mend func()) {
	for _, addr := range to {
		n.ip("-n", n.router, "route", "add", "blackhole", addr.String()+"/32")
	}
	return func() {
		for _, addr := range to {
			n.ip("-n", n.router, "route", "del", "blackhole", addr.String()+"/32")
		}
	}
}

// dial connects from where the workers are: a socket stays in the namespace of the thread that made
// it.
func (n *islands) dial(ctx context.Context, addr string) (conn net.Conn, err error) {
	err = n.there(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", addr)
		return err
	})
	return conn, err
}

// there does something on a thread in the namespace of the workers.
func (n *islands) there(do func() error) error {
	runtime.LockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer func() { _ = here.Close() }()
	far, err := os.Open("/run/netns/" + n.far)
	if err != nil {
		return err
	}
	defer func() { _ = far.Close() }()
	if err := unix.Setns(int(far.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	failure := do()
	if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
		return err // the thread stays locked, so it ends with its goroutine
	}
	runtime.UnlockOSThread()
	return failure
}
