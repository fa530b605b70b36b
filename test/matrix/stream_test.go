package matrix

import (
	"context"
	"testing/synctest"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// stream is a session of a worker. heard may be read after synctest.Wait.
type stream struct {
	h        *host
	grpc     grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse]
	cut      context.CancelFunc
	received []*lessorv1.SessionResponse
	ended    bool
	err      error // why it ended; nil for an end in order
}

func (h *host) stream(authorization []string) *stream {
	h.t.Helper()
	s := &stream{h: h}
	var ctx context.Context
	ctx, s.cut = context.WithCancel(h.with(authorization))
	s.grpc = must(h.workers.Session(ctx))(h.t)
	go func() {
		for {
			m, err := s.grpc.Recv()
			if err != nil {
				s.ended, s.err = true, notEOF(err)
				return
			}
			s.received = append(s.received, m)
		}
	}()
	return s
}

// send sends a frame. If the stream has ended, its.err says why.
func (s *stream) send(m *lessorv1.SessionRequest) {
	_ = s.grpc.Send(m)
	synctest.Wait()
}

// open opens a session that gets no work.
func (s *stream) open(tenant, worker, instance string) {
	from := &lessorv1.Sender{Role: "worker", Id: worker}
	s.send(&lessorv1.SessionRequest{
		Id: "1", Tenant: tenant, Sender: from,
		Payload: &lessorv1.SessionRequest_Handshake{Handshake: handshake(worker, instance)},
	})
	s.send(&lessorv1.SessionRequest{
		Id: "2", Tenant: tenant, Sender: from, Payload: &lessorv1.SessionRequest_Register{Register: registration("nothing")},
	})
}

func handshake(worker, instance string) *lessorv1.Handshake {
	return &lessorv1.Handshake{Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: worker, InstanceId: instance}}
}

func registration(queue string) *lessorv1.Register {
	return &lessorv1.Register{
		Queues: []string{queue}, Capabilities: &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{MaxParallel: 10}},
		Packages: []*lessorv1.Package{{Name: "model", Version: "1"}}, InstallsPackages: true,
	}
}

// openWorkerSession opens a session of a tenant's worker that stays open as long as the host.
func (h *host) openWorkerSession(tenant string) {
	h.t.Helper()
	n := h.parties[tenant]
	s := h.stream(bearer(h.tokens[tenant+" worker"]))
	s.open(tenant, n["worker"], n["instance"])
	accept := s.received[0].GetAccept()
	n["session"], n["resume"] = accept.GetSessionId(), accept.GetSessionToken()
	h.secrets = append(h.secrets, n["resume"])
	h.t.Cleanup(s.cut)
}
