package session_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The accept answers the handshake. It has the session id, the version and the time of the
// coordinator, the heartbeat interval, the idle timeout, and the size of the largest frame (S7).
func TestAcceptHasTheSettingsOfTheSession(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenStream(t, "w")
		corr := worker.Send(wiretest.HandshakeOf("w"))
		m := worker.NextFrame()
		a := wiretest.WantPayload[*lessorv1.Accept](worker, m)
		wiretest.WantEqual(t, "corr", m.GetCorr(), corr)
		wiretest.WantEqual(t, "session_id", a.GetSessionId(), r.ListedWorker(t, "w").GetSessionId())
		wiretest.WantEqual(t, "coordinator_version", a.GetCoordinatorVersion(), "test")
		if a.GetHeartbeatInterval().AsDuration() != defaultHeartbeat || a.GetIdleTimeout().AsDuration() != defaultIdle || a.GetServerTime() == nil || a.GetMaxMessageBytes() != minMessage {
			t.Errorf("the accept is %v, want interval %v, idle timeout %v, a server time and 4 MiB",
				a, defaultHeartbeat, defaultIdle)
		}
	})
}

// A frame with another tenant or sender than its stream has, or with an unknown protocol version,
// is refused and ends the session. The refusal is logged as a warning, and counted; a wrong tenant
// in the first frame is neither, because a worker may send one to learn the right tenant: the log
// says that it was told.
func TestDeniedFrameEndsTheSession(t *testing.T) {
	withHandshake := func(m *lessorv1.SessionRequest) { wiretest.SetPayload(m, wiretest.HandshakeOf("w")) }
	for _, tt := range []struct {
		name   string
		opened bool // the frame comes after the handshake
		change func(*lessorv1.SessionRequest)
		word   string // in the message of the error
		remedy string // in its remediation
	}{
		{"no tenant", false, func(m *lessorv1.SessionRequest) { withHandshake(m); m.Tenant = "" }, `tenant: is ""; it must be "default"`, "send that tenant"},
		{"another tenant", false, func(m *lessorv1.SessionRequest) { withHandshake(m); m.Tenant = "other" }, `tenant: is "other"; it must be "default"`, "send that tenant"},
		{"a long tenant", false, func(m *lessorv1.SessionRequest) { withHandshake(m); m.Tenant = wiretest.Text(1000) }, `tenant: is "` + wiretest.Text(512) + `..."; it must be`, "send that tenant"},
		{"no sender", false, func(m *lessorv1.SessionRequest) { withHandshake(m); m.Sender = nil }, "sender.role:", "set sender"},
		{"another role", false, func(m *lessorv1.SessionRequest) { withHandshake(m); m.Sender.Role = "coordinator" }, "sender.role:", "set sender"},
		{"a long name", false, func(m *lessorv1.SessionRequest) { withHandshake(m); m.Sender.Id = wiretest.Text(257) }, "sender.id: has 257 bytes", "name of the worker"},
		{"another name", false, func(m *lessorv1.SessionRequest) { withHandshake(m); m.Sender.Id = "other" }, "sender.id:", "same worker name"},
		{"no protocol", false, func(m *lessorv1.SessionRequest) { withHandshake(m); m.GetHandshake().Protocol = 0 }, "handshake.protocol: is 0;", "version"},
		{"newer protocol", false, func(m *lessorv1.SessionRequest) { withHandshake(m); m.GetHandshake().Protocol = 2 }, "handshake.protocol: is 2;", "version"},
		{"another tenant later", true, func(m *lessorv1.SessionRequest) { m.Tenant = "other" }, `tenant: is "other"; it must be "default"`, "send that tenant"},
		{"another role later", true, func(m *lessorv1.SessionRequest) { m.Sender.Role = "" }, "sender.role:", "leave it out"},
		{"another sender later", true, func(m *lessorv1.SessionRequest) { m.Sender.Id = "other" }, "sender.id:", "a separate stream for each"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenStream(t, "w")
				if tt.opened {
					worker.Handshake()
				}
				m := worker.NewFrame(nil)
				tt.change(m)
				e := worker.WantError(worker.SendFrame(m), refusal.CodeDenied, tt.word)
				wiretest.WantContains(t, "remediation", e.GetRemediation(), tt.remedy)
				err := worker.WaitForEnd()
				synctest.Wait()
				asks, log := !tt.opened && m.GetTenant() != "" && strings.HasPrefix(tt.word, "tenant:"), r.Log.String()
				for line, want := range map[string]bool{
					`"level":"INFO","msg":"a worker was told the tenant of its credential`: asks, `"level":"WARN","msg":"frame refused"`: !asks, `"msg":"session ends"`: !asks,
				} {
					if strings.Contains(log, line) != want {
						t.Errorf("%s is in the log: %v, want %v:\n%s", line, !want, want, log)
					}
				}
				counted := strings.Contains(wiretest.GetPath(t, r, "/metrics", http.StatusOK),
					`lessor_session_resets_total{code="`+refusal.CodeDenied+`"} 1`)
				if counted != !asks {
					t.Errorf("the metrics count the end of the session: %v, want %v", counted, !asks)
				}
				if status.Code(err) != codes.PermissionDenied || refusal.CodeOf(err) != refusal.CodeDenied {
					t.Errorf("the stream ended with %v, want PERMISSION_DENIED and %s", err, refusal.CodeDenied)
				}
				if w := r.ListedWorker(t, "w"); w != nil {
					t.Errorf("the worker is still listed: %v", w)
				}
			})
		})
	}
}

// The first frame binds its stream to its tenant and sender, also if it is not the handshake: the
// handshake may then leave them out, but not have others.
func TestFirstFrameBindsTheStream(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*lessorv1.SessionRequest)
		word   string // in the message of the error; empty: it is accepted
	}{
		{"the same", func(*lessorv1.SessionRequest) {}, ""},
		{"none", func(m *lessorv1.SessionRequest) { m.Tenant, m.Sender = "", nil }, ""},
		{"another tenant", func(m *lessorv1.SessionRequest) { m.Tenant = "other" }, `tenant: is "other"; it must be "default"`},
		{"another sender", func(m *lessorv1.SessionRequest) {
			m.Sender.Id, m.GetHandshake().Worker.Name = "other", "other"
		}, "sender.id: differs from the worker that opened the stream"},
		{"another worker", func(m *lessorv1.SessionRequest) {
			m.Sender, m.GetHandshake().Worker.Name = nil, "other"
		}, "sender.id: differs from handshake.worker.name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenStream(t, "w")
				first := worker.NewFrame(nil)
				first.Ack = &lessorv1.Ack{Request: true}
				wantAck(worker, worker.SendFrame(first))
				m := worker.NewFrame(wiretest.HandshakeOf("w"))
				tt.change(m)
				corr := worker.SendFrame(m)
				if tt.word == "" {
					wiretest.NextPayload[*lessorv1.Accept](worker)
					return
				}
				worker.WantError(corr, refusal.CodeDenied, tt.word)
				if err := worker.WaitForEnd(); refusal.CodeOf(err) != refusal.CodeDenied {
					t.Errorf("the stream ended with %v, want %s", err, refusal.CodeDenied)
				}
			})
		})
	}
}

// After the handshake, frames may leave out tenant and sender.
func TestLaterFramesMayLeaveOutTenantAndSender(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		m := worker.NewFrame(&lessorv1.WorkerHeartbeat{})
		m.Tenant, m.Sender = "", nil
		worker.SendFrame(m)
		wiretest.NextPayload[*lessorv1.HeartbeatAck](worker)
	})
}

// A handshake or register with a bad field is refused, and the error names the field. The stream
// does not end, and a corrected frame is accepted.
func TestBadFieldOfHandshakeOrRegisterIsNamed(t *testing.T) {
	long := wiretest.Text(257)
	type change func(*lessorv1.Handshake, *lessorv1.Register)
	for _, tt := range []struct {
		change change
		field  string
	}{
		{func(h *lessorv1.Handshake, _ *lessorv1.Register) { h.Worker = nil }, "handshake.worker.name: must not be empty"},
		{func(h *lessorv1.Handshake, _ *lessorv1.Register) { h.Worker.Name = "" }, "handshake.worker.name: must not be empty"},
		{func(h *lessorv1.Handshake, _ *lessorv1.Register) { h.Worker.Name = long }, "handshake.worker.name: has 257 bytes; the limit is 256"},
		{func(h *lessorv1.Handshake, _ *lessorv1.Register) { h.Worker.InstanceId = long }, "handshake.worker.instance_id: has 257 bytes"},
		{func(h *lessorv1.Handshake, _ *lessorv1.Register) { h.Worker.Version = long }, "handshake.worker.version: has 257 bytes"},
		{func(h *lessorv1.Handshake, _ *lessorv1.Register) { h.Worker.Hostname = "a\nb" }, "handshake.worker.hostname: has a control character"},
		{func(h *lessorv1.Handshake, _ *lessorv1.Register) { h.Auth = &lessorv1.HandshakeAuth{Mode: 99} }, "handshake.auth.mode: is 99, which this coordinator does not know"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Queues = nil }, "register.queues: must not be empty"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Queues = []string{"q", ""} }, "register.queues[1]: must not be empty"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Queues = []string{long} }, "register.queues[0]: has 257 bytes"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Queues = slices.Repeat([]string{"q"}, 101) }, "register.queues: has 101 entries; the limit is 100"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.WorkspaceId = long }, "register.workspace_id: has 257 bytes"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.PoolId = long }, "register.pool_id: has 257 bytes"},
		{func(h *lessorv1.Handshake, _ *lessorv1.Register) { h.ReplacesInstanceId = long }, "handshake.replaces_instance_id: has 257 bytes"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Capabilities = nil }, "register.capabilities.concurrency.max_parallel: is 0"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Capabilities.Concurrency.MaxParallel = 0 }, "max_parallel: is 0; the range is 1 to 10000"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Capabilities.Concurrency.MaxParallel = 10_001 }, "max_parallel: is 10001"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Capabilities.Types = []string{long} }, "register.capabilities.types[0]: has 257 bytes"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Capabilities.Runtimes = []string{"a", long} }, "register.capabilities.runtimes[1]: has 257 bytes"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Capabilities.Features = make([]string, 257) }, "register.capabilities.features: has 257 entries; the limit is 256"},
		{func(_ *lessorv1.Handshake, m *lessorv1.Register) { m.Capabilities.Labels = map[string]string{"": "a"} }, "register.capabilities.labels: has an empty key"},
		{
			func(_ *lessorv1.Handshake, m *lessorv1.Register) {
				m.Capabilities.Resources = map[string]float64{"a": -1}
			},
			`register.capabilities.resources["a"]: is -1; it cannot be negative`,
		},
		{
			func(_ *lessorv1.Handshake, m *lessorv1.Register) {
				m.Capabilities.Concurrency.PerTypeLimits = map[string]uint32{"a": 10_001}
			},
			`register.capabilities.concurrency.per_type_limits["a"]: is 10001; the range is 0 to 10000`,
		},
	} {
		t.Run(tt.field, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				r.SubmitAll(t, 1)
				worker := r.OpenStream(t, "w")
				h, m := wiretest.HandshakeOf("w"), wiretest.Registration(1)
				tt.change(h, m)
				if good := wiretest.HandshakeOf("w"); !proto.Equal(h, good) {
					worker.WantError(worker.Send(h), refusal.CodeInvalid, tt.field)
					h = good
				}
				worker.Send(h)
				wiretest.NextPayload[*lessorv1.Accept](worker)
				if good := wiretest.Registration(1); !proto.Equal(m, good) {
					worker.WantError(worker.Send(m), refusal.CodeInvalid, tt.field)
					wiretest.WantEqual(t, "the state", stateOf(r.ListedWorker(t, "w")), "HANDSHAKING")
					m = good
				}
				worker.WantNoFrame()
				worker.Send(m)
				worker.ReceiveAssignments(1)
			})
		})
	}
}

// A frame without a valid id, and a frame that cannot be decoded, is refused. Neither counts as the
// handshake, so that a handshake may still follow.
func TestBadFrames(t *testing.T) {
	for _, opened := range []bool{false, true} {
		t.Run(fmt.Sprintf("opened=%v", opened), func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenStream(t, "w")
				if opened {
					worker.Handshake()
				}
				badID := worker.NewFrame(&lessorv1.Goodbye{})
				badID.Id = ""
				worker.SendFrame(badID)
				worker.WantError("", refusal.CodeInvalid, "id: must not be empty")
				badID.Id = wiretest.Text(257)
				worker.SendFrame(badID)
				worker.WantError("", refusal.CodeInvalid, "id: has 257 bytes; the limit is 256")
				badID.Id, badID.Corr = "short", wiretest.Text(257)
				worker.SendFrame(badID)
				worker.WantError("short", refusal.CodeInvalid, "corr: has 257 bytes; the limit is 256")

				m := worker.NewFrame(&lessorv1.Goodbye{Reason: "REASON"})
				raw, err := proto.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				broken := wiretest.RawBytes(strings.Replace(string(raw), "REASON", "REA\xffON", 1))
				if err := worker.Stream.SendMsg(broken); err != nil {
					t.Fatal(err)
				}
				worker.WantError(m.GetId(), refusal.CodeInvalid, "goodbye.reason: contains invalid UTF-8")
				if err := worker.Stream.SendMsg(wiretest.RawBytes("\xff\xff\xff")); err != nil {
					t.Fatal(err)
				}
				worker.WantError("", refusal.CodeInvalid, "cannot be read")
				// broken after its id: tenant and sender are not known
				if err := worker.Stream.SendMsg(wiretest.RawBytes("\x0a\x03cut\xff")); err != nil {
					t.Fatal(err)
				}
				worker.WantError("cut", refusal.CodeInvalid, "cannot be read")
				if !opened {
					worker.Handshake()
				}
				worker.Send(wiretest.Registration(1))
				worker.Heartbeat()
			})
		})
	}
}

// A frame over the size limit of messages ends the stream with RESOURCE_EXHAUSTED, because gRPC
// cannot skip a message.
func TestOversizedFrameEndsTheStream(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		m := worker.NewFrame(&lessorv1.Error{Message: wiretest.Text(minMessage + 1)})
		if err := worker.Stream.Send(m); err != nil {
			t.Fatal(err)
		}
		if err := worker.WaitForEnd(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the stream ended with %v, want RESOURCE_EXHAUSTED", err)
		}
	})
}

// A worker that sends no instance_id gets a new one for each stream, so that its streams do not
// displace each other. It can resume each session.
func TestNamelessInstancesAreDistinct(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		var all []*wiretest.Worker
		var last *lessorv1.Accept
		for range 3 {
			var worker *wiretest.Worker
			worker, last = r.OpenSessionWith(t, "w", 1, func(h *lessorv1.Handshake) { h.Worker.InstanceId = "" })
			all = append(all, worker)
		}
		synctest.Wait()
		for _, worker := range all {
			worker.WantNoFrame()
		}
		res, err := r.Admin.ListWorkers(context.Background(), &lessorv1.ListWorkersRequest{})
		if err != nil || len(res.GetWorkers()) != 3 {
			t.Errorf("listed are %v (%v), want three sessions", res, err)
		}
		_, again := r.OpenSessionWith(t, "w", 1, func(h *lessorv1.Handshake) {
			h.Worker.InstanceId = ""
			wiretest.ResumeFrom(last, 1)(h)
		})
		if !again.GetResumed() || again.GetSessionId() != last.GetSessionId() {
			t.Errorf("the resume of session %s got %v", last.GetSessionId(), again)
		}
	})
}
