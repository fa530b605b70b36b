package main

import (
	"io"
	"log/slog"
	"os"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/standby"
	"github.com/lessor-dev/lessor/worker"
)

// parsed returns the commands with the flags of a command line.
func parsed(t *testing.T, args ...string) *cli {
	t.Helper()
	grammar := &cli{}
	parser, err := newParser(grammar, streams{out: io.Discard, err: io.Discard}, args...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Fatal(err)
	}
	return grammar
}

// Each flag of serve sets what it says, and nothing else.
func TestSettingsOfServe(t *testing.T) {
	serve := parsed(t, "serve", "--data=d", "--log-level=error", "--recovery=invalidate", "--pprof",
		"--callback-url=http://c:1", "--task-token-ttl=101m", "--auth",
		"--auth-audience=a", "--audit-retention=102h", "--host-tenant=b", "--backup-timeout=103m", "--backup-stall=104s", "--standby-buffer=123", "--standby-wait=124s",
		"--limit-payload=105", "--limit-output=106", "--limit-checkpoint=107", "--limit-discarded=108", "--limit-batch=109",
		"--max-connections=111", "--max-connections-of-address=110", "--max-handshakes-of-address=125", "--quota=tasks=112", "--quota-credential=watches=113", "--quota-tenant=t.tasks=114",
		"--session-heartbeat-interval=115s", "--session-idle-timeout=116m", "--session-send-timeout=117s", "--session-resource-wait=118s",
		"--health-mem=60", "--health-disk=70", "--health-missed=119", "--health-saturated-after=120s", "--health-tenant=t.mem=61", "--health-tenant=t.disk=71",
		"--health-tenant=t.missed=121", "--health-tenant=t.saturated-after=122s",
	).Serve
	log, err := serve.Log.logger(&app{streams: streams{err: io.Discard}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := serve.settings(log)
	if log.Enabled(t.Context(), slog.LevelWarn) || !log.Enabled(t.Context(), slog.LevelError) {
		t.Error("--log-level=error: the log has warnings, or no errors")
	}
	got.Logger = nil
	want := coordinator.Config{
		Version: buildVersion(), Recovery: engine.InvalidateLeases, Pprof: true,
		Callbacks: coordinator.Callbacks{URL: "http://c:1", TokenTTL: 101 * time.Minute},
		Auth:      &gate.Auth{Audience: "a"}, HostTenant: "b", AuditRetention: 102 * time.Hour,
		Backup:      coordinator.Backup{Timeout: 103 * time.Minute, Stall: 104 * time.Second},
		Standbys:    standby.Options{Buffer: 123, Wait: 124 * time.Second},
		Limits:      lease.Limits{Payload: 105, Output: 106, Checkpoint: 107, Discarded: 108, Batch: 109},
		Connections: preauth.Connections{Most: 111, MostOfPeer: 110, HandshakesOfPeer: 125},
		Quotas: quota.Config{
			Tenant: quota.Limits{Tasks: 112}, Credential: quota.Limits{Watches: 113},
			Tenants:     map[string]quota.Limits{"t": {Tasks: 114}},
			Credentials: map[string]quota.Limits{},
		},
		Sessions: session.Config{
			HeartbeatInterval: 115 * time.Second, IdleTimeout: 116 * time.Minute, SendTimeout: 117 * time.Second,
			ResourceWait: 118 * time.Second,
			Health:       session.Thresholds{MemPct: 60, DiskPct: 70, Missed: 119, SaturatedAfter: 120 * time.Second},
			TenantHealth: map[string]session.Thresholds{"t": {
				MemPct: 61, DiskPct: 71, Missed: 121,
				SaturatedAfter: 122 * time.Second,
			}},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the settings are %+v (error %v), want %+v", got, err, want)
	}
}

// Each flag of worker run sets what it says, and nothing else.
func TestSettingsOfAWorker(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	got := parsed(t, "worker", "run", "--queue=q", "--name=n", "--tenant=t", "--workspace=w", "--drain-timeout=1m",
		"--spool=s", "--inline-limit=8MiB", "-j", "7",
		"--type-limit=a=2", "--single-flight", "--max-bytes=3MiB", "--runtime=r", "--feature=f", "--label=k=v", "--resource=gpu=4",
		"--package=@org/foo@1,2", "--package=bar", "--installer-timeout=2m", "--", "true",
	).Worker.Run.config(log)
	got.Hooks = worker.Hooks{}
	want := worker.Config{
		Name: "n", Version: buildVersion(), Tenant: "t", Workspace: "w", DrainTimeout: time.Minute, Disk: "s",
		MaxMessageBytes: 8<<20 + reportRoom, Logger: log,
		Concurrency: 7, PerTypeLimits: map[string]int{"a": 2}, SingleFlight: true, MaxBytes: 3 << 20,
		Runtimes: []string{"r"}, Features: []string{"f"},
		Labels: map[string]string{"k": "v"}, Resources: map[string]float64{"gpu": 4},
		Packages: []worker.Package{{Name: "@org/foo", Version: "1,2"}, {Name: "bar"}}, InstallerTimeout: 2 * time.Minute,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the settings are %+v, want %+v", got, want)
	}
}

// A worker of a pool says of which one it is. Workers of one machine have different names, unless
// --name says otherwise.
func TestSettingsOfAWorkerOfAPool(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LESSOR_POOL_ID", "gpu")
	t.Setenv("LESSOR_WORKER_ID", "gpu-1")
	for _, test := range []struct{ url, flag, name, pool string }{
		{"http://127.0.0.1:9200", "--single-flight", host + "-gpu-1", "gpu"},
		{"http://127.0.0.1:9200", "--name=n", "n", "gpu"},
		{"", "--single-flight", "", ""}, // such as a worker in the command of a task
	} {
		t.Setenv("LESSOR_POOL_URL", test.url)
		got := parsed(t, "worker", "run", "--queue=q", test.flag, "--", "true").Worker.Run.config(nil)
		if got.Name != test.name || got.PoolID != test.pool {
			t.Errorf("at %q with %s: name %q and pool %q, want %q and %q",
				test.url, test.flag, got.Name, got.PoolID, test.name, test.pool)
		}
	}
}

// Each flag of submit sets the field of its name, and nothing else.
func TestSettingsOfASubmit(t *testing.T) {
	got, err := parsed(t, "submit", "--workspace=w", "--queue=q", "--type=t", "--payload=p", "--run-id=r",
		"--task-key=k", "--asset-id=a", "--idempotency-key=i",
		"--label=l=v", "--priority=1", "--run-at=2026-12-01T06:00:01Z", "--deadline=2026-12-01T06:00:02Z", "--attempt-timeout=3s", "--start-timeout=4s",
		"--heartbeat-interval=5s", "--heartbeat-timeout=6s", "--cancel-grace=7s", "--retention=8s", "--concurrency-key=c", "--concurrency-limit=9",
		"--fairness-key=f", "--max-attempts=10", "--max-losses=11", "--initial-backoff=12s", "--backoff-multiplier=13", "--max-backoff=14s",
		"--require-runtime=rr", "--require-feature=rf", "--require-label=rl=v", "--require-resource=gpu=15", "--require-package=p@1",
		"--resource-ref=id@worker", "--affinity=af", "--sticky", "--affinity-ttl=16s", "--host-node=h", "--chain-index=17", "--middleware=m",
	).Submit.spec(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &lessorv1.TaskSpec{}
	if err := prototext.Unmarshal([]byte(`workspace_id: "w" queue: "q" type: "t" payload: "p" run_id: "r" task_key: "k" asset_id: "a" idempotency_key: "i"
		labels { key: "l" value: "v" } priority: 1 run_at { seconds: 1796104801 } deadline { seconds: 1796104802 } attempt_timeout { seconds: 3 }
		start_timeout { seconds: 4 } heartbeat_interval { seconds: 5 } heartbeat_timeout { seconds: 6 } cancel_grace { seconds: 7 } retention { seconds: 8 }
		concurrency_key: "c" concurrency_limit: 9 fairness_key: "f"
		retry_policy { max_attempts: 10 max_losses: 11 initial_backoff { seconds: 12 } backoff_multiplier: 13 max_backoff { seconds: 14 } }
		requirements { runtimes: "rr" features: "rf" labels { key: "rl" value: "v" } resources { key: "gpu" value: 15 } package: "p@1" }
		resource_refs { resource_id: "id" worker_id: "worker" } affinity { key: "af" mode: AFFINITY_MODE_STICKY ttl { seconds: 16 } }
		trace_meta { host_node_id: "h" chain_index: 17 middleware_chain: "m" }`), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("the task is\n%v\nwant\n%v", got, want)
	}
	// T1: a client that sends no more than the queue submits the same spec.
	if got, err := parsed(t, "submit", "--queue=q").Submit.spec(nil); err != nil || !proto.Equal(got, &lessorv1.TaskSpec{Queue: "q"}) {
		t.Errorf("with --queue alone, the task is %v (error %v)", got, err)
	}
	for flag, requires := range map[string]bool{
		"--require-runtime=r": true, "--require-feature=f": true, "--require-label=l=v": true, "--require-resource=gpu=1": true,
		"--require-package=p": true, "--host-node=h": false, "--chain-index=0": false, "--middleware=m": false,
	} {
		got, err := parsed(t, "submit", "--queue=q", flag).Submit.spec(nil)
		if err != nil || (got.GetRequirements() != nil) != requires || (got.GetTraceMeta() != nil) == requires {
			t.Errorf("with %s alone, the task is %v (error %v)", flag, got, err)
		}
	}
}

// Each flag of the commands that select tasks sets the condition of its name, and nothing else.
func TestSettingsOfAFilter(t *testing.T) {
	got, err := parsed(t, "task", "list", "--queue=q", "--state=ready", "--run-id=r", "--type=t", "--host-node=h",
		"--concurrency-key=c", "--label=l=v",
		"--idempotency-key=i", "--worker=n", "--since=2026-06-01T06:00:01Z", "--until=2026-06-01T06:00:02Z",
		"--ended-since=2026-06-01T06:00:03Z", "--ended-until=2026-06-01T06:00:04Z", "--end-reason=start_timeout", "--error-category=timeout").Task.List.filter("w")
	want := &lessorv1.TaskFilter{
		WorkspaceId: "w", Queue: "q", States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_READY}, RunId: "r",
		Type: "t", HostNodeId: "h", ConcurrencyKey: "c",
		Labels: map[string]string{"l": "v"}, IdempotencyKey: "i", WorkerId: "n",
		CreatedAfter: &timestamppb.Timestamp{Seconds: 1780293601}, CreatedBefore: &timestamppb.Timestamp{Seconds: 1780293602},
		FinishedAfter: &timestamppb.Timestamp{Seconds: 1780293603}, FinishedBefore: &timestamppb.Timestamp{Seconds: 1780293604},
		Reasons:         []lessorv1.Reason{lessorv1.Reason_REASON_START_TIMEOUT},
		ErrorCategories: []lessorv1.ErrorCategory{lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT},
	}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("the filter is %v (error %v), want %v", got, err, want)
	}
	for _, flag := range []string{
		"--queue=q", "--state=ready", "--run-id=r", "--type=t", "--host-node=h", "--concurrency-key=c", "--label=l=v",
		"--idempotency-key=i", "--worker=n", "--since=-1h", "--until=-1h",
		"--ended-since=-1h", "--ended-until=-1h", "--end-reason=START_TIMEOUT", "--error-category=TIMEOUT",
	} {
		if !parsed(t, "task", "list", flag).Task.List.isSet() {
			t.Errorf("%s is no condition", flag)
		}
	}
}
