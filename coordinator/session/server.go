package session

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Protocol is the version of the session protocol.
const Protocol = 1

// Deps is what the streams need from the coordinator around them.
type Deps struct {
	Config  Config
	Limits  lease.Limits
	Version string // of the coordinator; the accept frame carries it
	// MaxMessage is the size of the largest frame that is read, in bytes; the accept frame carries
	// it.
	MaxMessage int
	Logger     *slog.Logger
	Engine     *engine.Engine
	Quotas     *quota.Book
	Tokens     convert.Tokens
	Registry   *Registry // the sessions whose streams are open
	// View reads the store.
	View func(func(store.Reader) error) error
	// Assign makes the assignments of new leases for a worker with this credential.
	Assign func(credential string, granted []engine.Granted) ([]*lessorv1.Assignment, error)
	// AuditPackage records in the audit what became of a package operation at a worker (X4). The
	// context is that of a stream of the worker, which may have ended; code is empty unless the
	// operation has failed. asked is false if the coordinator does not know that the worker was
	// asked, for example because it has restarted meanwhile.
	AuditPackage func(ctx context.Context, worker string, end *lessorv1.PkgEvent, code string, asked bool)
	// Stopping is cancelled when the coordinator begins to stop.
	Stopping context.Context
}

// Caller is who opened a stream, as package gate identified it.
type Caller struct {
	auth.Identity
	Token     string // the bearer token of the call; empty: none
	Certified bool   // the connection has a client certificate
}

// quotas returns whose quotas apply (X5).
func (who *Caller) quotas() quota.Caller {
	return quota.Caller{Tenant: who.Tenant, Credential: who.Credential}
}

// Server serves the streams of workers.
type Server struct {
	Deps
	resumes       *resumeTable
	sessionTokens tokens
}

// New returns a server of streams.
func New(d Deps) *Server {
	s := &Server{Deps: d, resumes: newResumeTable(), sessionTokens: tokens{d.Engine.DeriveKey("session token")}}
	s.resumes.packagesLost = s.packagesLost
	return s
}

// logUntilOpen returns the log of a stream before its handshake is accepted. Until then only the
// call tells who the worker is.
func (s *Server) logUntilOpen(ctx context.Context, who Caller) *slog.Logger {
	log := s.Logger.With("tenant", who.Tenant, "subject", who.Subject)
	if p, ok := grpcpeer.FromContext(ctx); ok {
		log = log.With("peer.address", p.Addr.String())
	}
	return log
}

// Serve serves one worker's stream, from its first frame to its end; the proto describes the
// frames.
func (s *Server) Serve(
	stream grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse], who Caller,
) error {
	leave, err := s.Quotas.Enter(who.quotas(), quota.Sessions, true)
	if err != nil {
		return refusal.Status(err)
	}
	defer leave()
	ss := &Session{
		srv: s, log: s.logUntilOpen(stream.Context(), who), stream: stream, who: who,
		opened: time.Now(), ended: make(chan error, 1), stuck: make(chan struct{}), written: make(chan struct{}),
	}
	ss.writer = streamWriter{run: ss.write, running: true}
	now := s.Engine.Now().Wall
	ss.view = view{connected: now, seen: now}
	ss.health = workerHealth{limits: s.Config.health(ss.who.Tenant), interval: s.Config.HeartbeatInterval}
	ss.giveUp = sync.OnceFunc(ss.sendTimedOut)
	ss.slow = time.AfterFunc(s.Config.SendTimeout, ss.giveUp)
	ss.slow.Stop()
	return ss.run()
}
