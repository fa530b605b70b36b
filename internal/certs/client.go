package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// errHalf refuses a certificate without its key.
var errHalf = errors.New("a certificate and its key must be set together")

// Client reads the files and returns the TLS configuration of a client. Without Files.CA, the
// client trusts the authorities of the system.
func Client(files Files) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if files.CA != "" {
		var err error
		if cfg.RootCAs, err = Pool(files.CA); err != nil {
			return nil, err
		}
	}
	switch {
	case files.Cert == "" && files.Key == "":
		return cfg, nil
	case files.Cert == "" || files.Key == "":
		return nil, errHalf
	}
	pair, err := readPair(files)
	if err != nil {
		return nil, err
	}
	// Unlike Certificates, GetClientCertificate sends the certificate also to a server that does
	// not trust its authority. The server's error then says so.
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return cfg, nil
}

// Transport returns the credentials with which gRPC connects. They read the files for each
// connection, so changed files take effect with the next connection, unless one of the files is a
// pipe. If the files cannot be read then, for example while somebody replaces them, the credentials
// use what they read last. The error is about the first read.
func Transport(files Files) (credentials.TransportCredentials, error) {
	cfg, err := Client(files)
	if err != nil {
		return nil, err
	}
	if readOnce(files) {
		return credentials.NewTLS(cfg), nil
	}
	t := transport{credentials.NewTLS(cfg), files, new(atomic.Pointer[tls.Config])}
	t.last.Store(cfg)
	return t, nil
}

// transport is the credentials of a client whose files may change.
type transport struct {
	credentials.TransportCredentials
	files Files
	last  *atomic.Pointer[tls.Config] // the newest configuration that could be read from the files
}

// ClientHandshake implements credentials.TransportCredentials.
func (t transport) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	if cfg, err := Client(t.files); err == nil {
		t.last.Store(cfg)
	}
	return credentials.NewTLS(t.last.Load()).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials; the copy shares last.
func (t transport) Clone() credentials.TransportCredentials {
	return transport{t.TransportCredentials.Clone(), t.files, t.last}
}
