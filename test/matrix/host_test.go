package matrix

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/gate"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// host is a coordinator in a bubble of fake time, with its clients.
type host struct {
	*environment
	t              *testing.T
	store          *memstore.Store
	commits        int // commits to the store since effects was called last
	contentsBefore contents
	auditBefore    []*records.Audit
	conn           *grpc.ClientConn
	web            *http.Client
	tasks          lessorv1.TaskServiceClient
	workers        lessorv1.WorkerServiceClient
	admin          lessorv1.AdminServiceClient
	auth           lessorv1.AuthServiceClient
	parties        map[string]names // those of the environment, with the sessions of this host
	secrets        []string         // secrets that were issued in this host
	streams        int              // how many streams the cells have opened
	refusalAudited map[string]bool  // credentials whose refusal is in the audit
	auditDiffers   bool             // something was refused, or time has passed: both change later audit entries
	storeChanged   bool             // the store is not as it was at first
	log            bytes.Buffer
	stop           context.CancelFunc
	served         chan error
}

// onHost starts a host in which each tenant has an open session. Call it outside of a bubble.
func (e *environment) onHost(t *testing.T, do func(h *host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(openingDelay)
		h := e.openOver(t, e.storeCopy(t))
		defer h.close()
		for _, tenant := range []string{acme, evil} {
			h.openWorkerSession(tenant)
		}
		synctest.Wait()
		h.contentsBefore, h.auditBefore, h.commits = h.contents(), h.audit(), 0
		do(h)
	})
}

func (e *environment) openOver(t *testing.T, st *memstore.Store) *host {
	t.Helper()
	h := &host{
		environment: e, t: t, store: st, parties: map[string]names{}, refusalAudited: map[string]bool{},
		served: make(chan error, 1),
	}
	for tenant, n := range e.parties {
		h.parties[tenant] = maps.Clone(n)
	}
	st.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error { h.commits++; apply(); return nil })
	c := must(coordinator.New(st, coordinator.Config{
		Version: "test", Auth: &gate.Auth{}, Callbacks: coordinator.Callbacks{TokenTTL: time.Minute},
		Logger: slog.New(slog.NewTextHandler(&h.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))(t)
	h.serve(c)
	return h
}

// serve starts the coordinator, and dials both listeners.
func (h *host) serve(c *coordinator.Coordinator) {
	h.t.Helper()
	calls, web := bufconn.Listen(64<<10), bufconn.Listen(64<<10)
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() { h.served <- c.Serve(ctx, calls, web) }()
	h.web = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return web.DialContext(ctx) },
		// bufconn may deliver a deadline that was withdrawn; the server would then take an idle
		// client for one that has left.
		DisableKeepAlives: true,
	}}
	h.conn = must(grpc.NewClient("passthrough:///coordinator", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return calls.DialContext(ctx) })))(h.t)
	h.tasks, h.workers = lessorv1.NewTaskServiceClient(h.conn), lessorv1.NewWorkerServiceClient(h.conn)
	h.admin, h.auth = lessorv1.NewAdminServiceClient(h.conn), lessorv1.NewAuthServiceClient(h.conn)
}

// close stops the coordinator, and checks that no secret is in its log.
func (h *host) close() {
	h.t.Helper()
	_ = h.conn.Close()
	h.stop()
	if err := <-h.served; err != nil {
		h.t.Error(err)
	}
	log := h.log.String()
	for _, secret := range append(h.secrets, h.environment.secrets...) {
		if at := strings.Index(log, secret); at >= 0 {
			line, _, _ := strings.Cut(log[strings.LastIndexByte(log[:at], '\n')+1:], "\n")
			h.t.Errorf("the log has the secret %s: %s", secret, line)
		}
	}
}

// as returns a context whose calls carry a token.
func (h *host) as(token string) context.Context { return h.with(bearer(token)) }

func (h *host) with(authorization []string) context.Context {
	return metadata.NewOutgoingContext(h.t.Context(), metadata.MD{"authorization": authorization})
}
