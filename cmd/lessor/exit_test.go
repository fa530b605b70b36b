package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/internal/runner"
	"github.com/lessor-dev/lessor/store"
)

func withDetail(t *testing.T, code codes.Code, message string, detail protoadapt.MessageV1) error {
	t.Helper()
	s, err := status.New(code, message).WithDetails(detail)
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func TestErrorsHaveAMessageAndAnExitCode(t *testing.T) {
	const dialing = `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:7420: connect: connection refused"`
	const shaking = `connection error: desc = "transport: authentication handshake failed: `
	bad := &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: "task.queue", Description: "must not be empty"}, {Field: "task.payload", Description: "has 3 bytes; the limit is 2"},
	}}
	taken := &errdetails.ErrorInfo{Metadata: map[string]string{"task_id": "t1"}}
	quotaTasks := &errdetails.ErrorInfo{Domain: "lessor", Reason: "QUOTA_TASKS"}
	wait := &errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)}
	for name, test := range map[string]struct {
		err  error
		code int
		want string
	}{
		"none":          {nil, 0, ""},
		"plain":         {errors.New("something"), 1, "error: something\n"},
		"failure":       {fmt.Errorf("around: %w", fail(5, "do that", "no %s", "way")), 5, "error: no way\nhint: do that\n"},
		"without words": {&failure{code: 1}, 1, ""},
		"signal":        {&interruptedError{signal: syscall.SIGTERM}, 143, "error: stopped by a signal: terminated\n"},
		"broken pipe":   {fmt.Errorf("write: %w", syscall.EPIPE), 141, ""},
		"no answer":     {context.DeadlineExceeded, 3, "error: no answer in time\n"},
		"unreachable": {
			status.Error(codes.Unavailable, dialing), 3,
			"error: cannot reach the coordinator: dial tcp 127.0.0.1:7420: connect: connection refused\n" +
				"hint: is the coordinator running? start one with \"lessor serve\", or name another with --addr\n",
		},
		"no TLS there": {
			status.Error(codes.Unavailable, shaking+`tls: first record does not look like a TLS handshake"`), 3,
			"error: cannot reach the coordinator: it does not use TLS\n" +
				"hint: leave out --tls, --tls-ca and --tls-cert, or start the coordinator with --tls-cert\n",
		},
		"authority": {
			status.Error(codes.Unavailable,
				shaking+`tls: failed to verify certificate: x509: certificate signed by unknown authority (possibly because of \"x509: no\")"`), 3,
			"error: cannot reach the coordinator: tls: failed to verify certificate: x509: certificate signed by unknown authority (possibly because of \"x509: no\")\n" +
				"hint: set --tls-ca to the authority of its certificate; the certificate must be valid for the host of --addr\n",
		},
		"too old": {
			status.Error(codes.Unavailable,
				shaking+`tls: failed to verify certificate: x509: certificate has expired or is not yet valid: now"`), 3,
			"error: cannot reach the coordinator: tls: failed to verify certificate: x509: certificate has expired or is not yet valid: now\n" +
				"hint: replace the certificate of the coordinator (serve --tls-cert), unless the clock of this machine is wrong\n",
		},
		"own is too old": {
			status.Error(codes.Unavailable,
				`connection error: desc = "error reading server preface: remote error: tls: expired certificate"`), 3,
			"error: cannot reach the coordinator: it refuses the certificate of --tls-cert: it has expired or is not yet valid\n" +
				"hint: replace it, unless the clock of the coordinator is wrong\n",
		},
		"client's own": {
			status.Error(codes.Unavailable,
				`connection error: desc = "error reading server preface: remote error: tls: unknown certificate authority"`), 3,
			"error: cannot reach the coordinator: it refuses the connection: tls: unknown certificate authority\n" +
				"hint: the authority of --tls-cert must be in the coordinator's --tls-client-ca\n",
		},
		"client's own, cut off": {
			status.Error(codes.Unavailable, shaking+`write tcp 127.0.0.1:2->127.0.0.1:1: write: broken pipe"`), 3,
			"error: cannot reach the coordinator: write tcp 127.0.0.1:2->127.0.0.1:1: write: broken pipe\n" +
				"hint: " + hintShook + "\n",
		},
		"client's own, cut late": {
			status.Error(codes.Unavailable, `write tcp 127.0.0.1:2->127.0.0.1:1: write: broken pipe`), 3,
			"error: cannot reach the coordinator: write tcp 127.0.0.1:2->127.0.0.1:1: write: broken pipe\n" +
				"hint: " + hintCut + "\n",
		},
		"client's own, no alert": {
			status.Error(codes.Unavailable,
				`connection error: desc = "error reading server preface: write tcp 127.0.0.1:2->127.0.0.1:1: write: broken pipe"`), 3,
			"error: cannot reach the coordinator: write tcp 127.0.0.1:2->127.0.0.1:1: write: broken pipe\n" +
				"hint: " + hintCut + "\n",
		},
		"too large for a proxy": {
			status.Error(codes.Unknown, `unexpected HTTP status code received from server: 413 (Request Entity Too Large); transport: received unexpected content-type "text/html"`), 2,
			"error: the message is too large for a proxy in between: it answers with HTTP status 413 (Request Entity Too Large)\n" +
				"hint: raise the limit of the proxy, see docs/deployment.md, or send less\n",
		},
		"behind a proxy": {
			status.Error(codes.Unavailable,
				`unexpected HTTP status code received from server: 502 (Bad Gateway); transport: received unexpected content-type "text/html"`), 3,
			"error: a proxy in between cannot reach the coordinator: it answers with HTTP status 502 (Bad Gateway)\n" +
				"hint: does the coordinator run, and does the proxy have its address? the log of the proxy may say more\n",
		},
		"slow, behind a proxy": {
			status.Error(codes.Unavailable,
				`unexpected HTTP status code received from server: 504 (Gateway Timeout); transport: received unexpected content-type "text/html"`), 3,
			"error: a proxy in between got no answer from the coordinator in time: it answers with HTTP status 504 (Gateway Timeout)\n" +
				"hint: the coordinator may have done it anyway; check before you repeat the command\n",
		},
		"TLS there": {
			status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`), 3,
			"error: cannot reach the coordinator: the server at that address does not speak gRPC, or has closed the connection\n" +
				"hint: without --tls and --tls-ca, it may require TLS: set --tls-ca to its authority. Or, with --tls-cert, it may have refused that " +
				"certificate: the authority must be in the coordinator's --tls-client-ca. Or " + hintFull + ". The log of the coordinator tells\n",
		},
		"too many connections": {
			status.Error(codes.Unavailable,
				`connection error: desc = "error reading server preface: read tcp 127.0.0.1:2->127.0.0.1:1: read: connection reset by peer"`), 3,
			"error: cannot reach the coordinator: read tcp 127.0.0.1:2->127.0.0.1:1: read: connection reset by peer\n" +
				"hint: it was stopped, or something in between cuts connections. Or too many connections may be open, in total or from this address " +
				"(serve --max-connections, --max-connections-of-address). Or, without --tls and --tls-ca, it may require TLS: set --tls-ca to its authority. Or, with --tls-cert, it may have " +
				"refused that certificate: the authority must be in the coordinator's --tls-client-ca. The log of the coordinator tells\n",
		},
		"too many connections with TLS": {
			status.Error(codes.Unavailable, shaking+`EOF"`), 3,
			"error: cannot reach the coordinator: EOF\nhint: it was stopped, or something in between cuts connections. Or " + hintFull +
				". Or, with --tls-cert, it may have refused that certificate: the authority must be in the coordinator's --tls-client-ca. " +
				"The log of the coordinator tells\n",
		},
		"killed": { // TLS is no matter for a connection that had worked
			status.Error(codes.Unavailable, "error reading from server: read tcp 127.0.0.1:2->127.0.0.1:1: read: connection reset by peer"), 3,
			"error: cannot reach the coordinator: error reading from server: read tcp 127.0.0.1:2->127.0.0.1:1: read: connection reset by peer\n" +
				"hint: it was stopped, or something in between cuts connections; the log of the coordinator tells\n",
		},
		"HTTP there": {
			status.Error(codes.Unavailable,
				`connection error: desc = "error reading server preface: http2: failed reading the frame payload: http2: `+
					`frame too large, note that the frame header looked like an HTTP/1.1 header"`), 3,
			"error: cannot reach the coordinator: the server at that address does not speak gRPC\n" +
				"hint: --addr is the address of serve --listen, not of --http; a proxy in between must pass on gRPC\n",
		},
		"HTTPS there": {
			status.Error(codes.Unavailable,
				`connection error: desc = "transport: authentication handshake failed: remote error: tls: no application protocol"`), 3,
			"error: cannot reach the coordinator: the server at that address does not speak gRPC\n" +
				"hint: --addr is the address of serve --listen, not of --http; a proxy in between must pass on gRPC\n",
		},
		"stopped": {
			status.Error(codes.Unavailable,
				`connection error: desc = "error reading server preface: raw-read tcp 127.0.0.1:34144->127.0.0.1:18420: use of closed network connection"`), 3,
			"error: cannot reach the coordinator: the server at that address accepts connections but does not answer\n" +
				"hint: the coordinator or its machine may be stopped or overloaded; its log may say more\n",
		},
		"stopped, TLS": {
			status.Error(codes.Unavailable,
				`connection error: desc = "transport: authentication handshake failed: context deadline exceeded"`), 3,
			"error: cannot reach the coordinator: the server at that address accepts connections but does not answer\n" +
				"hint: the coordinator or its machine may be stopped or overloaded; its log may say more\n",
		},
		"plain HTTP": {
			status.Error(codes.Unimplemented,
				`unexpected HTTP status code received from server: 404 (Not Found); malformed header: missing HTTP content-type`), 3,
			"error: cannot reach the coordinator: the server at that address, or a proxy, does not speak gRPC: it answers with HTTP status 404 (Not Found)\n" +
				"hint: --addr is the address of serve --listen, not of --http; a proxy in between must pass on gRPC\n",
		},
		"cut by a proxy": {
			status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"), 3,
			"error: the connection to the coordinator was cut: stream terminated by RST_STREAM with error code: INTERNAL_ERROR\n" +
				"hint: try again; if there is a proxy in between, docs/deployment.md says what it must do\n",
		},
		"not found": {status.Error(codes.NotFound, "no such task"), 4, "error: no such task\n"},
		"wrapped":   {fmt.Errorf("around: %w", status.Error(codes.NotFound, "no such task")), 4, "error: no such task\n"},
		"too large": {
			status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9000015 vs. 4194304)"), 2,
			"error: the message has 9000015 bytes; the limit is 4194304\n",
		},
		"exists": {
			withDetail(t, codes.AlreadyExists, "key: is taken", taken), 1,
			"error: key: is taken\n" +
				"hint: look at it with \"lessor task get t1\", or use another key\n",
		},
		"internal": {status.Error(codes.Internal, "internal error"), 1, "error: the coordinator failed: internal error\nhint: see the coordinator's log\n"},
		"no such host": {
			status.Error(codes.Unavailable, "name resolver error: produced zero addresses"), 3,
			"error: cannot reach the coordinator: the host name of --addr has no address\n" +
				"hint: is the coordinator running? start one with \"lessor serve\", or name another with --addr\n",
		},
		"wrong state": {status.Error(codes.FailedPrecondition, "the task is READY"), 1, "error: the task is READY\n"},
		"bad fields": {
			withDetail(t, codes.InvalidArgument, "bad", bad), 2,
			"error: task.queue: must not be empty\nerror: task.payload: has 3 bytes; the limit is 2\n",
		},
		"bad, no detail": {status.Error(codes.InvalidArgument, "bad"), 2, "error: bad\n"},
		"overloaded":     {withDetail(t, codes.ResourceExhausted, "too many", wait), 3, "error: the coordinator is overloaded: too many\nhint: try again in 3s\n"},
		"engine busy": {
			refusal.Status(engine.ErrOverloaded), 3,
			"error: the coordinator is overloaded: too many commands are waiting\n" +
				"hint: try again in 200ms\n",
		},
		"store failed": {refusal.Status(engine.ErrStore), 3, "error: the coordinator is unavailable: the store failed\nhint: try again in 1s\n"},
		"backup busy":  {refusal.Status(refusal.ErrBackupBusy), 3, "error: another backup is under way\nhint: try again in 10s\n"},
		"disk full": {
			refusal.Status(engine.ErrDiskFull), 3,
			"error: " + engine.ErrDiskFull.Error() + "\n" +
				"hint: try again in 5s; \"lessor status\", to the host tenant, and the log of the coordinator say how much room it needs\n",
		},
		"over the quota": {
			withDetail(t, codes.ResourceExhausted, "too many tasks", quotaTasks), 3,
			"error: too many tasks\n" +
				"hint: try again later; \"lessor status\" shows the quotas\n",
		},
		"exists, no id": {status.Error(codes.AlreadyExists, "is taken"), 1, "error: is taken\n"},
		"conflict":      {status.Error(codes.Aborted, "another change came first"), 3, "error: another change came first\nhint: try again\n"},
		"no answer yet": {
			status.Error(codes.DeadlineExceeded, "too late"), 3,
			"error: no answer in time\n" +
				"hint: the coordinator may have done it anyway; check before you repeat the command\n",
		},
		"call cancelled": {status.Error(codes.Canceled, "context canceled"), 1, "error: the call was cancelled\n"},
		"unknown call": {
			status.Error(codes.Unimplemented, "unknown method"), 1,
			"error: the coordinator does not know this call: unknown method\n" +
				"hint: compare \"lessor version\" with \"lessor status\"\n",
		},
		"serve stopped": {serveError(context.Canceled), 0, ""},
		"damage met by a start": {
			startError("d", fmt.Errorf("read the store: %w",
				&store.CommitError{Err: &store.DamagedError{Path: "d/lessor.db", Problem: "page 7 is missing"}})), 5,
			"error: d/lessor.db is damaged or not a Lessor store: page 7 is missing\nhint: " + hintDamaged + "\n",
		},
		"damage met by an opening": {
			storeError("d", &store.CommitError{Err: &store.DamagedError{Path: "d/lessor.db", Problem: "page 7 is missing"}}), 5,
			"error: d/lessor.db is damaged or not a Lessor store: page 7 is missing\nhint: " + hintDamaged + "\n",
		},
		"damage met while serving": {
			storeFailed(&store.CommitError{Err: &store.DamagedError{Path: "d/lessor.db", Problem: "page 7 is missing"}}), 70,
			"error: the outcome of changes that were not acknowledged is unknown: d/lessor.db is damaged or not a Lessor store: page 7 is missing\nhint: " + hintDamaged + "\n",
		},
		"commit failed at the start": {
			startError("d", &store.CommitError{Err: errors.New("disk")}), 70,
			"error: the outcome of changes that were not acknowledged is unknown: disk\nhint: acknowledged changes are safe, others may be lost: check the disk, then start again\n",
		},
		"disk of the store is full": {
			storeError("d", &os.PathError{Op: "write", Path: "d/lessor.db", Err: syscall.ENOSPC}), 5,
			"error: no space left on the disk of data directory d\nhint: free space on that disk, or raise the quota of the user\n",
		},
		"store of another user": {
			storeError("d", &os.PathError{Op: "open", Path: "d/lessor.db", Err: syscall.EACCES}), 5,
			"error: no permission for data directory d\nhint: the data directory and its files must belong to the user who runs lessor\n",
		},
		"corrupt store": {
			storeError("d", &store.CorruptError{Keyspace: store.Spec, Key: []byte{1}, Problem: "the checksum does not match"}), 5,
			"error: corrupt record in spec under key 01: the checksum does not match\nhint: " + hintDamaged + "\n",
		},
		"port below 1024": {
			listenError("http", "127.0.0.1:80", &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}), 5,
			"error: not permitted to listen on 127.0.0.1:80\nhint: ports below 1024 need root\n",
		},
		"limit of keys": {
			refusal.Status(&auth.LimitError{What: "keys", Most: 8}), 1,
			"error: the tenant has reached its limit of 8 keys\nhint: \"lessor token list\" shows the tokens, \"lessor key list\" the keys\n",
		},
		"serve failed": {
			serveError(fmt.Errorf("%w: disk", engine.ErrStore)), 70,
			"error: the store failed: disk\nhint: acknowledged changes are safe, others may be lost: check the disk, then start again\n",
		},
		"serve failed, disk full": {
			serveError(fmt.Errorf("%w: %w", engine.ErrStore,
				&os.PathError{Op: "write", Path: "d/lessor.db", Err: syscall.ENOSPC})), 70,
			"error: the store failed: write d/lessor.db: no space left on device\n" +
				"hint: acknowledged changes are safe, others may be lost: free space on that disk, or raise the quota of the user, then start again\n",
		},
		"serve failed, record": {
			serveError(fmt.Errorf("%w: %w", engine.ErrStore,
				&store.CorruptError{Keyspace: store.Spec, Key: []byte{1}, Problem: "the checksum does not match"})), 70,
			"error: the store failed: corrupt record in spec under key 01: the checksum does not match\nhint: " + hintDamaged + "\n",
		},
		"files for a listener": {
			listenError("http", "localhost:0", &net.OpError{Op: "listen", Err: os.NewSyscallError("socket", syscall.EMFILE)}), 5,
			"error: cannot listen on \"localhost:0\": socket: too many open files\nhint: " + hintOpenFiles + "\n",
		},
		"files for the store": {
			storeError("d", &os.PathError{Op: "open", Path: "d/lessor.db", Err: syscall.EMFILE}), 5,
			"error: cannot use data directory d: open d/lessor.db: too many open files\nhint: " + hintOpenFiles + "\n",
		},
		"too little address space": {
			storeError("d", fmt.Errorf("data directory d: %w", syscall.ENOMEM)), 5,
			"error: cannot map the store in d: cannot allocate memory\nhint: " + hintAddressSpace + "\n",
		},
		"read-only store": {
			storeError("d", &os.PathError{Op: "open", Path: "d/lessor.db", Err: syscall.EROFS}), 5,
			"error: data directory d is on a read-only file system\nhint: name a directory that can be written\n",
		},
		"compaction of a read-only store": {
			compactCmd{Data: "d"}.failure(&os.PathError{Op: "open", Path: "d/lessor.db", Err: syscall.EROFS}), 5,
			"error: data directory d is on a read-only file system\nhint: name a directory on another one with --to\n",
		},
		"read-only run": {
			openError("d", &os.PathError{Op: "mkdir", Path: "d", Err: syscall.EROFS}), 5,
			"error: data directory d is on a read-only file system\nhint: name a directory that can be written\n",
		},
		"torn store": {
			storeError("d", &store.TornError{Path: "d/lessor.db", Problem: "page 7 is missing"}), 5,
			"error: the last commit to d/lessor.db is incomplete: page 7 is missing\nhint: a loss of power can cut off a commit, which was then not acknowledged: " +
				"lessor serve takes it back; start it on the directory, stop it, then verify again\n",
		},
		"several": {
			joined([]*failure{fail(4, "look", "a"), fail(1, "wait", "b")}), 4,
			"error: a\nerror: b\nhint: look\n",
		},
		"unheard": {
			unheard(&os.PathError{Op: "write", Path: "out", Err: syscall.EPIPE}, "look", "%d done", 2), 141,
			"error: 2 done, but the answer cannot be written: write out: broken pipe\nhint: look\n",
		},
		"run in use": {
			openError("d", &runner.InUseError{Dir: "d", PID: "7"}), 5,
			"error: data directory d is in use by pid 7\nhint: wait for that process to end, or name another directory\n",
		},
		"line too long": {
			openError("d", &runner.LineTooLongError{Line: 7}), 2,
			fmt.Sprintf("error: line 7 has more than %d bytes\nhint: write the data to files and use the names of the files as lines\n", runner.MaxLine),
		},
		"newer store": {
			storeError("d", &store.NewerFormatError{Have: 9, Want: 1}), 5,
			"error: the store has format 9, but this version of Lessor reads only formats up to 1: use a newer version\n" +
				"hint: it was not changed; start the version of lessor that wrote it, or a newer one\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if code := report(streams{err: &out}, test.err); code != test.code || out.String() != test.want {
				t.Errorf("got %d and\n%s\nwant %d and\n%s", code, &out, test.code, test.want)
			}
		})
	}
}

func TestWhenAcceptsATimeOrADuration(t *testing.T) {
	var w when
	if err := w.UnmarshalText([]byte("2026-12-01T06:00:00Z")); err != nil || w.timestamp().GetSeconds() != 1796104800 {
		t.Errorf("2026-12-01T06:00:00Z is read as %v (%v), want that time", w, err)
	}
	before := time.Now()
	if err := w.UnmarshalText([]byte("10m")); err != nil || w.Before(before.Add(10*time.Minute)) {
		t.Errorf("10m is read as %v (%v), want 10 minutes from now", w, err)
	}
	if got := (when{}).timestamp(); got != nil {
		t.Errorf("a flag that was not given is the timestamp %v, want none", got)
	}
}

// A name cannot change what stands beside it: it has no control characters, does not turn the text
// around, and ends no line. And no part of it is hidden, but joiners stay, which some scripts and
// emoji need.
func TestTablesShowNoControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"": "-", "a b": "a b", "a\tb": "a b", "a\x1b[31mb\n": `a\x1b[31mb\n`, "é\u0085": `é\u0085`,
		"mail\u202eliam": `mail\u202eliam`, "\u2066a\u2069": `\u2066a\u2069`, "a\u2028b\u2029": `a\u2028b\u2029`, "日本 👩\u200d🚀 שלום": "日本 👩\u200d🚀 שלום",
		"ma\u200bil\ufeff": `ma\u200bil\ufeff`, "a\u00ad\u2060b": `a\u00ad\u2060b`, "a\U000e0061": `a\U000e0061`, "می\u200cخواهم ☀\ufe0f": "می\u200cخواهم ☀\ufe0f",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestPreviewShowsTextAndTheSizeOfAnythingElse(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "empty",
		"hello":                                 "hello",
		strings.Repeat("y\n", 10):               strings.Repeat("y\n", 10),
		strings.Repeat("y\n", 11):               "22 B: " + strings.Repeat("y\n", 9) + "y…",
		"\xff\xfe":                              "2 B that are not text",
		string(bytes.Repeat([]byte("x"), 2048)): "2.0 KiB: " + string(bytes.Repeat([]byte("x"), 200)) + "…",
	} {
		if got := preview([]byte(text)); got != want {
			t.Errorf("%.20q: got %q, want %q", text, got, want)
		}
	}
}
