package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/lessor-dev/lessor/internal/pipe"
)

// makeCerts returns a directory with an authority, a certificate for the server localhost and one
// for a client.
func makeCerts(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "certs")
	a, err := NewAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Server([]string{"localhost", "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Client("client", &url.URL{Scheme: "lessor", Host: "acme", Path: "/worker/w"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// connectedPair returns both ends of a TCP connection. Unlike net.Pipe, TCP buffers what is
// written, so that no side blocks if the other has given up.
func connectedPair(t *testing.T) (serverConn, clientConn net.Conn) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	if clientConn, err = net.Dial("tcp", lis.Addr().String()); err == nil {
		serverConn, err = lis.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	return serverConn, clientConn
}

func filesIn(dir, name string) Files {
	return Files{
		Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"),
		CA: filepath.Join(dir, "ca.pem"),
	}
}

// handshake does a TLS handshake of the two configurations over a new connection. It returns the
// state of the server, and the errors of both sides.
func handshake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	serverConn, clientConn := connectedPair(t)
	defer func() { _ = serverConn.Close(); _ = clientConn.Close() }()
	client = client.Clone()
	client.ServerName = "localhost"
	failed := make(chan error, 1)
	go func() {
		c := tls.Client(clientConn, client)
		err := c.Handshake()
		if err == nil {
			// with TLS 1.3, a client learns only after the handshake that its certificate was
			// refused
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		if err != nil {
			_ = clientConn.Close()
		}
		failed <- err
	}()
	c := tls.Server(serverConn, server)
	_ = serverConn.SetDeadline(time.Now().Add(time.Minute))
	err := c.Handshake()
	if err == nil {
		_, err = c.Write([]byte{1})
	}
	if err != nil {
		_ = serverConn.Close()
	}
	return c.ConnectionState(), errors.Join(err, <-failed)
}

// X1: the certificates that one command makes work for both sides, and the server sees the name of
// the client. A client without a certificate gets a connection without a name. Certificates of
// another authority are refused by both sides.
func TestDevelopmentCertificates(t *testing.T) {
	t.Attr("rules", "X1")
	dir, other := makeCerts(t), makeCerts(t)
	server, err := Server(filesIn(dir, "server"), slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	client, err := Client(filesIn(dir, "client"))
	if err != nil {
		t.Fatal(err)
	}
	state, err := handshake(t, server, client)
	if err != nil || len(state.VerifiedChains) != 1 || state.PeerCertificates[0].URIs[0].String() != "lessor://acme/worker/w" {
		t.Errorf("the server saw %d verified chains and the certificates %v (error %v), want one chain and lessor://acme/worker/w",
			len(state.VerifiedChains), state.PeerCertificates, err)
	}
	anonymous, err := Client(Files{CA: filesIn(dir, "").CA})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := handshake(t, server, anonymous); err != nil || len(state.VerifiedChains) != 0 {
		t.Errorf("a client without a certificate: %d verified chains, error %v, want none and no error",
			len(state.VerifiedChains), err)
	}
	foreign, err := Client(Files{Cert: filesIn(other, "client").Cert, Key: filesIn(other, "client").Key, CA: filesIn(dir, "").CA})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(t, server, foreign); err == nil {
		t.Error("the server accepted a certificate of another authority")
	}
	if _, err := handshake(t, server, &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		t.Error("a client accepted a server whose authority it does not know")
	}
}

// X1: the certificate of a server is for its hosts, names and addresses, and for no client; that of
// a client is for no server.
func TestDevelopmentCertificatesAreForOneSide(t *testing.T) {
	t.Attr("rules", "X1")
	dir := makeCerts(t)
	roots, err := Pool(filesIn(dir, "").CA)
	if err != nil {
		t.Fatal(err)
	}
	for name, usage := range map[string]x509.ExtKeyUsage{"server": x509.ExtKeyUsageServerAuth, "client": x509.ExtKeyUsageClientAuth} {
		pair, err := tls.LoadX509KeyPair(filesIn(dir, name).Cert, filesIn(dir, name).Key)
		if err != nil {
			t.Fatal(err)
		}
		for _, side := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{side}}); (err == nil) != (side == usage) {
				t.Errorf("the certificate of the %s is good for usage %d: %v, want %v", name, side, err == nil, side == usage)
			}
		}
		for host, want := range map[string]bool{"localhost": true, "127.0.0.1": true, "example.org": false} {
			if err := pair.Leaf.VerifyHostname(host); (err == nil) != (want && name == "server") {
				t.Errorf("the certificate of the %s for %s: %v", name, host, err)
			}
		}
	}
}

// Only its owner can read a key file, and existing files are not overwritten.
func TestDevelopmentKeysAreKept(t *testing.T) {
	dir := makeCerts(t)
	for _, name := range []string{"ca", "server", "client"} {
		info, err := os.Stat(filepath.Join(dir, name+"-key.pem"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key of %s has the mode %v (error %v), want 0600", name, info.Mode(), err)
		}
	}
	if _, err := NewAuthority(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second authority in the same directory: error %v, want %v", err, fs.ErrExist)
	}
	a, err := NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, create := range map[string]func() error{
		"server": func() error { return a.Server([]string{"localhost"}) },
		"client": func() error { return a.Client("client", &url.URL{Scheme: "lessor", Host: "acme", Path: "/worker/w"}) },
	} {
		if err, again := create(), create(); err != nil || !errors.Is(again, fs.ErrExist) {
			t.Errorf("%s: errors %v and %v, want none and then %v", name, err, again, fs.ErrExist)
		}
	}
}

// Beside a certificate whose key is kept elsewhere, no key is left that does not belong to it.
func TestNoKeyWithoutItsCertificate(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewAuthority(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v, want %v", err, fs.ErrExist)
	}
	if _, err := os.Stat(filepath.Join(dir, "ca-key.pem")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key of the new authority: error %v, want %v", err, fs.ErrNotExist)
	}
}

// fullFile is a file on a full disk.
type fullFile struct{ closed bool }

func (*fullFile) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func (f *fullFile) Close() error {
	f.closed = true
	return nil
}

// A certificate that cannot be written is an error that says why, and nothing else.
func TestDevelopmentCertificateOnAFullDisk(t *testing.T) {
	var file fullFile
	if err := encode(&file, "CERTIFICATE", []byte("x")); !errors.Is(err, syscall.ENOSPC) || err.Error() != syscall.ENOSPC.Error() || !file.closed {
		t.Errorf("error %q, closed %t; want %q, and closed", err, file.closed, syscall.ENOSPC)
	}
}

// X1: changed files take effect with the next connection. If a file is broken, that is logged once,
// and the old files stay in force.
func TestServerReadsChangedFiles(t *testing.T) {
	t.Attr("rules", "X1")
	dir, next := makeCerts(t), makeCerts(t)
	var log bytes.Buffer
	server, err := Server(filesIn(dir, "server"), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	trusts := func(dir string) bool {
		t.Helper()
		client, err := Client(filesIn(dir, "client"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = handshake(t, server, client)
		return err == nil
	}
	if !trusts(dir) || trusts(next) {
		t.Fatal("the first certificates are not in force")
	}
	modified := time.Now().Add(-time.Hour)
	replace := func(name string, content []byte) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file, content, 0o600), os.Chtimes(file, modified, modified)); err != nil {
			t.Fatal(err)
		}
	}
	wantLogged := func(n int) {
		t.Helper()
		if got := strings.Count(log.String(), "the old ones stay"); got != n {
			t.Errorf("the log has %d lines about a broken file, want %d: %q", got, n, log.String())
		}
	}
	current, err := os.ReadFile(filepath.Join(dir, "server.pem"))
	if err != nil {
		t.Fatal(err)
	}
	replace("server.pem", current)
	trusts(dir)
	// another size at the same time, then another time with the same size
	for i, broken := range []string{"no certificate", "NO certificate"} {
		replace("server.pem", []byte(broken))
		for range 2 {
			if !trusts(dir) || trusts(next) {
				t.Errorf("with %q in a file, the old certificates are not in force", broken)
			}
			wantLogged(i + 1)
		}
		modified = modified.Add(time.Minute)
	}
	for _, name := range []string{"server.pem", "server-key.pem", "ca.pem"} {
		content, err := os.ReadFile(filepath.Join(next, name))
		if err != nil {
			t.Fatal(err)
		}
		replace(name, content)
	}
	if trusts(dir) || !trusts(next) {
		t.Error("the new certificates are not in force")
	}
	wantLogged(2)
}

// X1: a client uses changed files with its next connection. If a file is broken, the old files stay
// in force.
func TestClientReadsChangedFiles(t *testing.T) {
	t.Attr("rules", "X1")
	dir, next := makeCerts(t), makeCerts(t)
	client, err := Transport(filesIn(dir, "client"))
	if err != nil {
		t.Fatal(err)
	}
	trusts := func(dir string) bool {
		t.Helper()
		pair, err := tls.LoadX509KeyPair(filesIn(dir, "server").Cert, filesIn(dir, "server").Key)
		pool, err2 := Pool(filesIn(dir, "").CA)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		cfg := &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert,
			NextProtos: []string{"h2"},
		}
		serverConn, clientConn := connectedPair(t)
		defer func() { _ = serverConn.Close(); _ = clientConn.Close() }()
		served := make(chan error, 1)
		go func() { served <- tls.Server(serverConn, cfg).Handshake() }()
		_, _, err = client.Clone().ClientHandshake(t.Context(), "localhost:1", clientConn)
		_ = clientConn.Close()
		return errors.Join(err, <-served) == nil
	}
	replace := func(from, name string) {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(from, name))
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !trusts(old) {
		t.Error("a file was broken before the first connection, and the first files are not in force")
	}
	replace(old, "ca.pem")
	if !trusts(old) || trusts(next) {
		t.Fatal("the first files are not in force")
	}
	for _, name := range []string{"client.pem", "ca.pem"} { // a new certificate with the old key
		replace(next, name)
		if !trusts(old) || trusts(next) {
			t.Errorf("after %s alone was replaced, the old files are not in force, want them until all are replaced", name)
		}
	}
	replace(next, "client-key.pem")
	if trusts(old) || !trusts(next) {
		t.Error("the new files are not in force")
	}
}

// The server uses a certificate even if it has expired by the server's clock, because the clocks of
// clients may differ. The log has a warning.
func TestExpiredCertificate(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { // in the year 2000
		a, err := NewAuthority(dir)
		if err == nil {
			err = a.Server([]string{"localhost"})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	for file, want := range map[string]int{filesIn(dir, "server").Cert: 1, filesIn(makeCerts(t), "server").Cert: 0} {
		var log bytes.Buffer
		_, err := Server(Files{Cert: file, Key: strings.TrimSuffix(file, ".pem") + "-key.pem"},
			slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || strings.Count(log.String(), "has expired") != want {
			t.Errorf("error %v, log %q, want %d warnings", err, log.String(), want)
		}
	}
}

// X1: when an authority is no longer trusted, the server refuses a client with its certificate,
// even if the client resumes a TLS session.
func TestRemovedAuthorityIsNotTrusted(t *testing.T) {
	t.Attr("rules", "X1")
	dir, next := makeCerts(t), makeCerts(t)
	server, err := Server(filesIn(dir, "server"), slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	client, err := Client(filesIn(dir, "client"))
	if err != nil {
		t.Fatal(err)
	}
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for i := range 2 {
		if state, err := handshake(t, server, client); err != nil || state.DidResume != (i == 1) || len(state.VerifiedChains) != 1 {
			t.Fatalf("connection %d: resumed %t, %d verified chains, error %v, want only the second one resumed", i,
				state.DidResume,
				len(state.VerifiedChains), err)
		}
	}
	later := time.Now().Add(time.Minute)
	other, err := os.ReadFile(filesIn(next, "").CA)
	if err := errors.Join(err, os.WriteFile(filesIn(dir, "").CA, other, 0o600), os.Chtimes(filesIn(dir, "").CA, later, later)); err != nil {
		t.Fatal(err)
	}
	if state, err := handshake(t, server, client); err == nil {
		t.Errorf("the client of the removed authority got in: resumed %t, %d verified chains, want an error",
			state.DidResume, len(state.VerifiedChains))
	}
}

// Files that cannot be used are refused at the start, by the client and by the server.
func TestBadFiles(t *testing.T) {
	dir := makeCerts(t)
	good := filesIn(dir, "client")
	for what, files := range map[string]Files{
		"no key":          {Cert: good.Cert},
		"no certificate":  {Key: good.Key},
		"another key":     {Cert: good.Cert, Key: filesIn(dir, "server").Key},
		"no such file":    {CA: filepath.Join(dir, "none.pem")},
		"no authority":    {CA: good.Key},
		"key for a chain": {Cert: good.Key, Key: good.Key},
	} {
		half := what == "no key" || what == "no certificate"
		if _, err := Client(files); err == nil || half != errors.Is(err, errHalf) {
			t.Errorf("%s: the error of a client is %v, want one; that a file is missing: %v", what, err, half)
		}
		if _, err := Transport(files); err == nil {
			t.Errorf("%s: the credentials of a client accept the files, want an error", what)
		}
		if _, err := Server(files, slog.Default()); err == nil {
			t.Errorf("%s: a server accepts the files, want an error", what)
		}
	}
}

// A pipe without a writer is refused. A pipe with content is read, as from a process substitution
// of the shell.
func TestPipes(t *testing.T) {
	dir := makeCerts(t)
	good := filesIn(dir, "server")
	empty := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(empty, 0o600); err != nil {
		t.Fatal(err)
	}
	valid := time.Now()
	for file, files := range map[string]func(pipe string) Files{
		good.Cert: func(pipe string) Files { return Files{Cert: pipe, Key: good.Key, CA: good.CA} },
		good.Key:  func(pipe string) Files { return Files{Cert: good.Cert, Key: pipe, CA: good.CA} },
		good.CA:   func(pipe string) Files { return Files{Cert: good.Cert, Key: good.Key, CA: pipe} },
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(valid)) // a bubble begins in the year 2000
			for side, read := range map[string]func(Files) error{
				"client": func(f Files) error { _, err := Client(f); return err },
				"server": func(f Files) error { _, err := Server(f, slog.Default()); return err },
			} {
				if err := read(files(empty)); !errors.Is(err, pipe.ErrNoWriter) || !strings.Contains(err.Error(), empty) {
					t.Errorf("%s with a pipe without a writer for %s: error %v, want one that names the pipe", side, file, err)
				}
			}
			handshakes(t, files(pipeWith(t, file)), good)
			handshakes(t, good, files(pipeWith(t, file)))
		})
	}
}

// handshakes makes two connections, neither of which waits for anything: a pipe is not read again.
func handshakes(t *testing.T, ofServer, ofClient Files) {
	t.Helper()
	server, err := Server(ofServer, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	client, err := Transport(ofClient)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		began := time.Now()
		serverConn, clientConn := net.Pipe()
		go func() { _, _, _ = credentials.NewTLS(server).ServerHandshake(serverConn) }()
		if _, _, err := client.ClientHandshake(t.Context(), "localhost", clientConn); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("a handshake took %v, want that it waits for nothing", waited)
		}
		_ = clientConn.Close()
		_ = serverConn.Close()
		for _, file := range []string{ofServer.Cert, ofServer.Key, ofServer.CA} { // as if it were written again
			if err := os.Chtimes(file, time.Time{}, time.Now()); err != nil {
				t.Error(err)
			}
		}
	}
}

// pipeWith returns the name of a pipe with the content of a file, whose writer has ended.
func pipeWith(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/dev/fd/%d", r.Fd())
}
