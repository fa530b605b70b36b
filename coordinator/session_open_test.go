package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

func TestAcceptSaysHowToGoOn(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.talk(t, "w")
		corr := tk.say(hello("w"))
		m := tk.next()
		a := payloadOf[*lessorv1.Accept](tk, m)
		wantText(t, "corr", m.GetCorr(), corr)
		wantText(t, "session_id", a.GetSessionId(), r.worker(t, "w").GetSessionId())
		wantText(t, "coordinator_version", a.GetCoordinatorVersion(), "test")
		if a.GetHeartbeatInterval().AsDuration() != defaultHeartbeat || a.GetIdleTimeout().AsDuration() != defaultIdle || a.GetServerTime() == nil {
			t.Errorf("accept is %v", a)
		}
	})
}

// A frame with another tenant or sender than that of the stream, or with an unknown protocol version, is refused and ends the session. The log warns of
// it, but not if the first frame may only ask for the tenant of the caller.
func TestDenials(t *testing.T) {
	greet := func(m *lessorv1.SessionRequest) { setPayload(m, hello("w")) }
	for _, tt := range []struct {
		name   string
		opened bool
		change func(*lessorv1.SessionRequest)
		word   string
		remedy string
	}{
		{"no tenant", false, func(m *lessorv1.SessionRequest) { greet(m); m.Tenant = "" }, `tenant: is ""; it must be "default"`, "send that tenant"},
		{"another tenant", false, func(m *lessorv1.SessionRequest) { greet(m); m.Tenant = "other" }, `tenant: is "other"; it must be "default"`, "send that tenant"},
		{"no sender", false, func(m *lessorv1.SessionRequest) { greet(m); m.Sender = nil }, "sender.role:", "set sender"},
		{"another role", false, func(m *lessorv1.SessionRequest) { greet(m); m.Sender.Role = "coordinator" }, "sender.role:", "set sender"},
		{"another name", false, func(m *lessorv1.SessionRequest) { greet(m); m.Sender.Id = "other" }, "sender.id:", "same worker name"},
		{"no protocol", false, func(m *lessorv1.SessionRequest) { greet(m); m.GetHandshake().Protocol = 0 }, "handshake.protocol: is 0;", "version"},
		{"newer protocol", false, func(m *lessorv1.SessionRequest) { greet(m); m.GetHandshake().Protocol = 2 }, "handshake.protocol: is 2;", "version"},
		{"another tenant later", true, func(m *lessorv1.SessionRequest) { m.Tenant = "other" }, `tenant: is "other"; it must be "default"`, "send that tenant"},
		{"another role later", true, func(m *lessorv1.SessionRequest) { m.Sender.Role = "" }, "sender.role:", "leave it out"},
		{"another sender later", true, func(m *lessorv1.SessionRequest) { m.Sender.Id = "other" }, "sender.id:", "a separate stream for each"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				tk := r.talk(t, "w")
				if tt.opened {
					tk.shake()
				}
				m := tk.frame(nil)
				tt.change(m)
				e := tk.refused(tk.send(m), refusal.CodeDenied, tt.word)
				wantWord(t, "remediation", e.GetRemediation(), tt.remedy)
				level := "WARN"
				if !tt.opened && strings.HasPrefix(tt.word, "tenant:") {
					level = "INFO"
				}
				if log := r.log.String(); !strings.Contains(log, `"level":"`+level+`","msg":"frame refused"`) {
					t.Errorf("the refusal is not logged as %s:\n%s", level, log)
				}
				err := tk.over()
				if status.Code(err) != codes.PermissionDenied || refusal.CodeOf(err) != refusal.CodeDenied {
					t.Errorf("ended with %v, want PERMISSION_DENIED and %s", err, refusal.CodeDenied)
				}
				if w := r.worker(t, "w"); w != nil {
					t.Errorf("still listed: %v", w)
				}
			})
		})
	}
}

// After the handshake, frames may leave out tenant and sender.
func TestEnvelopeIsBound(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		m := tk.frame(&lessorv1.WorkerHeartbeat{})
		m.Tenant, m.Sender = "", nil
		tk.send(m)
		hear[*lessorv1.HeartbeatAck](tk)
	})
}

// A bad field in a handshake or register changes nothing and is named in the error. The stream goes on, and a corrected frame is accepted.
func TestBadFieldsOfOpening(t *testing.T) {
	long := text(257)
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
			serve(t, nil, func(t *testing.T, r *rig) {
				r.submitAll(t, 1)
				tk := r.talk(t, "w")
				h, m := hello("w"), registration(1)
				tt.change(h, m)
				if good := hello("w"); !proto.Equal(h, good) {
					tk.refused(tk.say(h), refusal.CodeInvalid, tt.field)
					h = good
				}
				tk.say(h)
				hear[*lessorv1.Accept](tk)
				if good := registration(1); !proto.Equal(m, good) {
					tk.refused(tk.say(m), refusal.CodeInvalid, tt.field)
					wantText(t, "the state", stateOf(r.worker(t, "w")), "HANDSHAKING")
					m = good
				}
				tk.quiet()
				tk.say(m)
				tk.given(1)
			})
		})
	}
}

// A frame without a valid id, or one that cannot be decoded, is refused. That is not counted as the handshake, which may still follow.
func TestBadFrames(t *testing.T) {
	for _, opened := range []bool{false, true} {
		t.Run(fmt.Sprintf("opened=%v", opened), func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				tk := r.talk(t, "w")
				if opened {
					tk.shake()
				}
				nameless := tk.frame(&lessorv1.Goodbye{})
				nameless.Id = ""
				tk.send(nameless)
				tk.refused("", refusal.CodeInvalid, "id: must not be empty")
				nameless.Id = text(257)
				tk.send(nameless)
				tk.refused("", refusal.CodeInvalid, "id: has 257 bytes; the limit is 256")
				nameless.Id, nameless.Corr = "short", text(257)
				tk.send(nameless)
				tk.refused("short", refusal.CodeInvalid, "corr: has 257 bytes; the limit is 256")

				m := tk.frame(&lessorv1.Goodbye{Reason: "REASON"})
				raw, err := proto.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				broken := rawBytes(strings.Replace(string(raw), "REASON", "REA\xffON", 1))
				if err := tk.stream.SendMsg(broken); err != nil {
					t.Fatal(err)
				}
				tk.refused(m.GetId(), refusal.CodeInvalid, "goodbye.reason: contains invalid UTF-8")
				if err := tk.stream.SendMsg(rawBytes("\xff\xff\xff")); err != nil {
					t.Fatal(err)
				}
				tk.refused("", refusal.CodeInvalid, "cannot be read")
				if !opened {
					tk.shake()
				}
				tk.say(registration(1))
				tk.beat()
			})
		})
	}
}

// A frame over the message limit ends the stream with RESOURCE_EXHAUSTED, because gRPC cannot skip it.
func TestOversizedFrameEndsTheStream(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		m := tk.frame(&lessorv1.Error{Message: text(minMessage + 1)})
		if err := tk.stream.Send(m); err != nil {
			t.Fatal(err)
		}
		if err := tk.over(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("ended with %v, want RESOURCE_EXHAUSTED", err)
		}
	})
}

// Workers that send no instance_id get a new one for each stream, so that their streams do not displace each other.
func TestNamelessInstancesAreDistinct(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		var all []*talker
		for range 3 {
			tk := r.talk(t, "w")
			tk.say(&lessorv1.Handshake{Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: "w"}})
			hear[*lessorv1.Accept](tk)
			tk.say(registration(1))
			all = append(all, tk)
		}
		synctest.Wait()
		for _, tk := range all {
			tk.quiet()
		}
		res, err := r.admin.ListWorkers(context.Background(), &lessorv1.ListWorkersRequest{})
		if err != nil || len(res.GetWorkers()) != 3 {
			t.Errorf("listed %v (%v), want three", res, err)
		}
	})
}
