package main

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/worker"
)

// A setting that is out of its range is refused with an error that names its flag, and says what is
// allowed.
func TestRefusedSettingsNameTheirFlags(t *testing.T) {
	long := strings.Repeat("x", 257)
	named := map[string]bool{}
	for _, test := range []struct{ command, flags, want string }{
		{"serve", "--limit-payload=65MiB", "--limit-payload: is 68157440 bytes; the range is 1 to 67108864"},
		{"serve", "--limit-output=65MiB", "--limit-output: is 68157440 bytes; the range is 1 to 67108864"},
		{"serve", "--limit-checkpoint=65MiB", "--limit-checkpoint: is 68157440 bytes; the range is 1 to 67108864"},
		{"serve", "--limit-discarded=65MiB", "--limit-discarded: is 68157440 bytes; the range is 1 to 67108864"},
		{"serve", "--limit-batch=10001", "--limit-batch: is 10001 tasks; the range is 1 to 10000"},
		{"serve", "--audit-retention=1m", "--audit-retention: is 1m0s; it must be at least 1h0m0s"},
		{"serve", "--backup-timeout=1ms", "--backup-timeout: is 1ms; it must be at least 1s"},
		{"serve", "--backup-stall=1ms", "--backup-stall: is 1ms; it must be at least 1s"},
		{"serve", "--task-token-ttl=3h", "--task-token-ttl: is 3h0m0s; the range is 1s to 2h0m0s"},
		{"serve", "--callback-url=there", `--callback-url: "there" is not of the form http://HOST:PORT or https://HOST:PORT, of at most 256 bytes`},
		{"serve", "--max-connections=1 --max-connections-of-address=2", "--max-connections, --max-connections-of-address: the limit of connections is 1, and 2 per address; " +
			"each must be at least 1, and the limit per address at most the total"},
		{"serve", "--session-heartbeat-interval=1ms", "--session-heartbeat-interval: is 1ms; the range is 100ms to 1h0m0s"},
		{"serve", "--session-idle-timeout=1s", "--session-idle-timeout: is 1s; the range is 20s to 24h0m0s"},
		{"serve", "--session-send-timeout=1ms", "--session-send-timeout: is 1ms; the range is 1s to 1h0m0s"},
		{"serve", "--session-resource-wait=1ms", "--session-resource-wait: is 1ms; the range is 1s to 24h0m0s"},
		{"serve", "--health-mem=5", "--health-mem: is 5 %; it must be more than 5 %"},
		{"serve", "--health-disk=5", "--health-disk: is 5 %; it must be more than 5 %"},
		{"serve", "--health-missed=1", "--health-missed: is 1; the range is 2 to 1000"},
		{"serve", "--health-saturated-after=25h", "--health-saturated-after: is 25h0m0s; the limit is 24h"},
		{"serve", "--health-tenant=acme.mem=5", `--health-tenant: tenant "acme": the memory threshold is 5 %; it must be more than 5 %`},
		{"serve", "--quota=calls=2000000/s", "--quota: the quota of calls is 2e+06 a second; the range is one a day to 1000000 a second"},
		{"serve", "--quota-credential=calls=1/s:2000000", "--quota-credential: the quota of calls has a burst of 2000000; " +
			"the range is 1 to 1000000, and a burst needs a rate"},
		{"serve", "--quota-credential=tasks=5", "--quota-credential: the quota of tasks applies to tenants, not to credentials"},
		{"serve", "--quota-tenant=acme.calls=2000000/s", `--quota-tenant: tenant "acme": the quota of calls is 2e+06 a second; ` +
			`the range is one a day to 1000000 a second`},
		{"serve", "--quota-tenant=acme.credential.tasks=5", `--quota-tenant: credentials of tenant "acme": the quota of tasks applies to tenants, not to credentials`},

		{"worker run", "--queue=" + long, "--queue: queue has 257 bytes; at most 256 are allowed"},
		{"worker run", "--queue=" + strings.Repeat("q,", 100) + "q", "--queue: there are 102 queues; 1 to 100 are allowed"},
		{"worker run", "--name=" + long, "--name has 257 bytes; at most 256 are allowed"},
		{"worker run", "--tenant=" + long, "--tenant has 257 bytes; at most 256 are allowed"},
		{"worker run", "--workspace=" + long, "--workspace has 257 bytes; at most 256 are allowed"},
		{"worker run", "--type-limit=a=-1", `--type-limit["a"] is -1; 0 to 10000 are allowed`},
		{"worker run", "--runtime=" + long, "a name in --runtime has 257 bytes; at most 256 are allowed"},
		{"worker run", "--feature=" + long, "a name in --feature has 257 bytes; at most 256 are allowed"},
		{"worker run", "--label=k=" + long, "a value in --label has 257 bytes; at most 256 are allowed"},
		{"worker run", "--resource=gpu=-1", `--resource["gpu"] is -1; it must be finite and not negative`},
		{"worker run", "--package=bar", "a version in --package must not be empty"},
		{"worker run", "--spool=missing", "--spool: stat missing: no such file or directory"},
	} {
		err := errorOfSettings(t, test.command, strings.Fields(test.flags)...)
		if f, ok := errors.AsType[*failure](err); !ok || f.code != exitUsage || f.text != test.want {
			t.Errorf("%s %s: the error is %v, want %q with the exit code of wrong arguments",
				test.command, test.flags, err, test.want)
		}
		named[test.want[:strings.IndexAny(test.want, " [")]] = true
	}
	for _, names := range settingFlags {
		if begin, _, _ := strings.Cut(names[1], " "); !named[begin] {
			t.Errorf("no error here begins with %q: nothing notices if the coordinator no longer says %q", begin, names[0])
		}
	}
}

// All wrong settings of serve are named at once, in the same order each time.
func TestAllWrongSettingsAreNamed(t *testing.T) {
	err := errorOfSettings(t, "serve",
		"--quota=calls=0/s", "--quota=call=1/s", "--quota=sessions=many", "--quota-credential=frames=2000000/s", "--quota-credential=tasks=5",
		"--quota-tenant=b.calls=2000000/s", "--quota-tenant=a.calls=2000000/s", "--quota-tenant=a.credential.tasks=5", "--quota-tenant=calls=1/s",
		"--health-tenant=b.mem=5", "--health-tenant=a.missed=1", "--health-tenant=a.disk=5", "--health-tenant=a.cpu=5", "--health-tenant=mem=7",
		"--health-mem=5", "--health-missed=1",
		"--limit-batch=100000", "--task-token-ttl=5h", "--callback-url=there", "--max-connections=1", "--max-connections-of-address=2",
		"--session-send-timeout=1ms", "--session-heartbeat-interval=1ms")
	want := `--quota: call=1/s: unknown limit "call"; the limits are calls, submits, frames, sessions, streams, watches, waits, tasks
--quota: calls=0/s: "0/s" is not a rate such as 500/s or 300/m, or 500/s:2000 with a burst
--quota: sessions=many: "many" is not a whole number above 0
--quota-credential: the quota of tasks applies to tenants, not to credentials
--quota-credential: the quota of frames is 2e+06 a second; the range is one a day to 1000000 a second
--quota-tenant: "calls" is not of the form TENANT.LIMIT, such as acme.calls
--quota-tenant: tenant "a": the quota of calls is 2e+06 a second; the range is one a day to 1000000 a second
--quota-tenant: tenant "b": the quota of calls is 2e+06 a second; the range is one a day to 1000000 a second
--quota-tenant: credentials of tenant "a": the quota of tasks applies to tenants, not to credentials
--health-tenant: a.cpu=5: unknown key "cpu"; the keys are mem, disk, missed and saturated-after
--health-tenant: "mem" is not of the form TENANT.KEY, such as acme.mem
--limit-batch: is 100000 tasks; the range is 1 to 10000
--task-token-ttl: is 5h0m0s; the range is 1s to 2h0m0s
--callback-url: "there" is not of the form http://HOST:PORT or https://HOST:PORT, of at most 256 bytes
--max-connections, --max-connections-of-address: the limit of connections is 1, and 2 per address; each must be at least 1, and the limit per address at most the total
--session-heartbeat-interval: is 1ms; the range is 100ms to 1h0m0s
--session-send-timeout: is 1ms; the range is 1s to 1h0m0s
--health-mem: is 5 %; it must be more than 5 %
--health-missed: is 1; the range is 2 to 1000
--health-tenant: tenant "a": the disk threshold is 5 %; it must be more than 5 %
--health-tenant: tenant "a": the number of missed heartbeats is 1; the range is 2 to 1000
--health-tenant: tenant "b": the memory threshold is 5 %; it must be more than 5 %`
	if f, ok := errors.AsType[*failure](err); !ok || f.code != exitUsage || f.text != want {
		t.Errorf("the error is\n%v\nwant\n%s", err, want)
	}
}

// errorOfSettings returns why a command refuses flags, before it changes anything on the machine.
func errorOfSettings(t *testing.T, command string, flags ...string) error {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if command == "serve" {
		_, err := parsed(t, append([]string{"serve", "--data=d"}, flags...)...).Serve.settings(log)
		return err
	}
	run := parsed(t, slices.Concat([]string{"worker", "run", "--queue=q"}, flags, []string{"--", "true"})...).Worker.Run
	_, err := worker.New(struct{ grpc.ClientConnInterface }{}, run.Queue, run.config(log))
	if err == nil {
		return nil
	}
	return configError(command, err)
}
