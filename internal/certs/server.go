package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/internal/pipe"
)

// Files has the names of the PEM files of one side of a connection. An empty name means that there
// is no such file.
type Files struct {
	Cert, Key string // the certificate that this side sends, with any intermediate certificates, and its key
	CA        string // the authorities that may have signed the certificate of the other side
}

// Server returns the TLS configuration of a listener. It looks for changed files at each
// connection, so new files take effect at once, unless one of the files is a pipe. If a new file
// cannot be read, it logs the error and keeps the old certificates. With Files.CA, it verifies the
// certificate of each client that sends one. The error is about the first read.
func Server(files Files, log *slog.Logger) (*tls.Config, error) {
	s := &server{files: files, log: log}
	if err := s.load(); err != nil {
		return nil, err
	}
	if readOnce(files) {
		return s.cfg, nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil },
	}, nil
}

// server keeps the newest configuration that could be read from the files.
type server struct {
	files Files
	log   *slog.Logger

	mu     sync.Mutex
	stamps []stamp
	cfg    *tls.Config
}

// stamp is what is compared to see whether a file has changed.
type stamp struct {
	modified int64 // in ns since 1970
	size     int64
}

// current returns the configuration for a new connection.
func (s *server) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stamps := stampsOf(s.files); !slices.Equal(stamps, s.stamps) {
		if err := s.load(); err != nil {
			s.log.Error("cannot renew the certificates; the old ones stay in use", "error", err)
		} else {
			s.log.Info("certificates renewed")
		}
		s.stamps = stamps // a broken file is logged once, and tried again when it changes
	}
	return s.cfg
}

func (s *server) load() error {
	stamps := stampsOf(s.files)
	pair, err := readPair(s.files)
	if err != nil {
		return err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if s.files.CA != "" {
		cfg.ClientAuth = tls.VerifyClientCertIfGiven
		if cfg.ClientCAs, err = Pool(s.files.CA); err != nil {
			return err
		}
	}
	s.cfg, s.stamps = cfg, stamps
	if leaf, now := pair.Leaf, time.Now(); now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		s.log.Warn("the certificate has expired or is not yet valid: clients refuse it",
			"file", s.files.Cert, "from", leaf.NotBefore, "until", leaf.NotAfter)
	}
	return nil
}

// Pool reads the certificates of authorities.
func Pool(file string) (*x509.CertPool, error) {
	text, err := pipe.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no certificate in PEM", file)
	}
	return pool, nil
}

func stampsOf(files Files) (all []stamp) {
	for _, file := range []string{files.Cert, files.Key, files.CA} {
		var one stamp
		if info, err := os.Stat(file); file != "" && err == nil {
			one = stamp{info.ModTime().UnixNano(), info.Size()}
		}
		all = append(all, one)
	}
	return all
}
