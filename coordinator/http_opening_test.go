package coordinator_test

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/internal/certs"
)

// While the store is being opened, /healthz answers 200 and every other path 503, with TLS and
// without. After that, the listener stays open: the next Accept gets the next connection.
func TestProbesAreAnsweredWhileTheStoreIsOpened(t *testing.T) {
	dir := t.TempDir()
	authority, err := certs.NewAuthority(dir)
	if err == nil {
		err = authority.Server([]string{"127.0.0.1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	files := certs.Files{Cert: dir + "/server.pem", Key: dir + "/server-key.pem"}
	server, err := certs.Server(files, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	trust, err := certs.Client(certs.Files{CA: dir + "/ca.pem"})
	if err != nil {
		t.Fatal(err)
	}
	for scheme, cfg := range map[string]*tls.Config{"http": nil, "https": server} {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
		stop := coordinator.AnswerProbes(coordinator.Config{TLS: cfg, Logger: slog.New(slog.DiscardHandler)},
			lis.(*net.TCPListener))
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/v1/tasks": http.StatusServiceUnavailable} {
			res, err := client.Get(scheme + "://" + lis.Addr().String() + path) //nolint:noctx // it answers
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, res.Body)
			if _ = res.Body.Close(); err != nil || res.StatusCode != want {
				t.Errorf("%s %s: status %d (%v), want %d", scheme, path, res.StatusCode, err, want)
			}
		}
		stop()
		waiting, err := net.Dial("tcp", lis.Addr().String()) //nolint:noctx // to a listener in this process
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := lis.Accept()
		if err != nil {
			t.Fatalf("Accept after the store is open: %v", err)
		}
		_, _, _ = waiting.Close(), accepted.Close(), lis.Close()
		client.CloseIdleConnections()
	}
}
