package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// answerOf returns an answer that selected n sessions.
func answerOf(n, done, failed uint32) *lessorv1.InstallPackageResponse {
	return &lessorv1.InstallPackageResponse{Operation: &lessorv1.PackageOperation{Sessions: n, Done: done, Failed: failed}}
}

// Each flag sets the field of its name, and nothing else.
func TestRequestsForPackages(t *testing.T) {
	var asked proto.Message
	addr := answerWith(t, func(_ string, req proto.Message) (proto.Message, error) {
		asked = req
		return nil, status.Error(codes.Internal, "enough")
	})
	for command, want := range map[string]struct {
		request proto.Message
		text    string
	}{
		"install @a/b@1 --worker w --session s --queue q --pool p --label l=v --workspace ws --source from --sha256 00": {
			&lessorv1.InstallPackageRequest{}, `name: "@a/b" version: "1" source: "from" sha256: "00" wait { seconds: 60 }
				workers { worker_id: "w" session_id: "s" queue: "q" pool_id: "p" labels { key: "l" value: "v" } workspace_id: "ws" }`,
		},
		"install a@b@1 --all --wait 0":           {&lessorv1.InstallPackageRequest{}, `name: "a@b" version: "1" workers {}`},
		"uninstall a@1 --all --workspace ws":     {&lessorv1.UninstallPackageRequest{}, `name: "a" version: "1" workers { workspace_id: "ws" } wait { seconds: 60 }`},
		"uninstall a@1 --worker w --session s":   {&lessorv1.UninstallPackageRequest{}, `name: "a" version: "1" workers { worker_id: "w" session_id: "s" } wait { seconds: 60 }`},
		"uninstall a@1 --label l=v,w --label m=": {&lessorv1.UninstallPackageRequest{}, `name: "a" version: "1" workers { labels { key: "l" value: "v,w" } labels { key: "m" } } wait { seconds: 60 }`},
	} {
		asked = nil
		var stderr strings.Builder
		run(append(strings.Fields("worker "+command), "--addr", addr), streams{out: &stderr, err: &stderr})
		if asked == nil {
			t.Errorf("%s: there is no request:\n%s", command, &stderr)
			continue
		}
		id := asked.ProtoReflect().Descriptor().Fields().ByName("request_id")
		if asked.ProtoReflect().Get(id).String() == "" {
			t.Errorf("%s: the request has no request_id, and cannot be repeated", command)
		}
		asked.ProtoReflect().Clear(id)
		if err := prototext.Unmarshal([]byte(want.text), want.request); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(asked, want.request) {
			t.Errorf("%s: the request is %T %v, want %T %v", command, asked, asked, want.request, want.request)
		}
	}
}

// The call is repeated as the same request until each session has a result. The last answer is
// printed.
func TestPackagesAreWaitedFor(t *testing.T) {
	const installed, failed = lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED, lessorv1.PackageStatus_PACKAGE_STATUS_FAILED
	whole := answerOf(3, 2, 1)
	whole.Operation.Results = []*lessorv1.PackageResult{
		{WorkerId: "w1", SessionId: "s1", Status: installed},
		{WorkerId: "w2", SessionId: "s2", Status: failed, Code: "E.PKG.INVALID", Detail: "not that"},
	}
	answers := []*lessorv1.InstallPackageResponse{answerOf(3, 0, 0), answerOf(3, 1, 0), answerOf(3, 1, 0), whole}
	ids := make(map[string]bool)
	calls := 0
	addr := answerWith(t, func(_ string, req proto.Message) (proto.Message, error) {
		ids[req.(*lessorv1.InstallPackageRequest).GetRequestId()] = true
		calls++
		return answers[(calls-1)%len(answers)], nil
	})
	var out, stderr strings.Builder
	code := run([]string{"worker", "install", "p@1", "--all", "--addr", addr}, streams{out: &out, err: &stderr})
	want := "WORKER  SESSION  STATUS     DETAIL\nw1      s1       INSTALLED  -\nw2      s2       FAILED     E.PKG.INVALID: not that\n\nthe first 2 of 3 sessions\n"
	said := "1 installed, 2 under way so far\nerror: 2 installed, 1 failed\n"
	if code != 1 || out.String() != want || stderr.String() != said || len(ids) != 1 || calls != len(answers) {
		t.Errorf("exit code %d after %d calls with the ids %v, and it said\n%s%s\nwant 1 after %d calls with one id, and\n%s%s",
			code, calls, ids, &out, &stderr, len(answers), want, said)
	}
	out.Reset()
	run([]string{"worker", "install", "p@1", "--all", "--addr", addr, "--json"}, streams{out: &out, err: &stderr})
	if !strings.HasPrefix(out.String(), `{"operation":{`) || strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), `"failed":1`) {
		t.Errorf("it printed\n%s\nwant the last answer in JSON", &out)
	}
}

// The exit code tells whether all sessions have done it.
func TestExitCodesOfPackages(t *testing.T) {
	for name, c := range map[string]struct {
		answer *lessorv1.InstallPackageResponse
		wait   string
		code   int
		said   string
	}{
		"done":           {answerOf(2, 2, 0), "1ns", 0, "2 installed\n"},
		"failed":         {answerOf(3, 1, 1), "1ns", 1, "error: 1 installed, 1 failed, 1 under way\n"},
		"too slow":       {answerOf(2, 1, 0), "1ns", 3, "error: 1 installed, 1 under way after 1ns\nhint: they go on; " + hintPackages + "\n"},
		"not waited for": {answerOf(2, 1, 0), "0", 0, "1 installed, 1 under way\n"},
		"failed before":  {answerOf(2, 0, 1), "0", 1, "error: 0 installed, 1 failed, 1 under way\n"},
	} {
		addr := answerWith(t, func(string, proto.Message) (proto.Message, error) { return c.answer, nil })
		var out, stderr strings.Builder
		code := run([]string{"worker", "install", "p@1", "--all", "--addr", addr, "--wait", c.wait},
			streams{out: &out, err: &stderr})
		if code != c.code || lastLines(stderr.String(), c.said) != c.said {
			t.Errorf("%s: exit code %d, and it said\n%s%s\nwant %d and\n%s", name, code, &out, &stderr, c.code, c.said)
		}
	}
}

// lastLines returns as many of the last bytes of a text as want has: before them there may be the
// progress.
func lastLines(text, want string) string { return text[max(len(text)-len(want), 0):] }

// It is waited for as long as it was asked, by as few calls as can be, also if a coordinator that
// stops answers early. If one fails, or a signal comes, the workers go on.
func TestWaitForPackages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr strings.Builder
		ctx, stop := context.WithCancelCause(t.Context())
		a := &app{ctx: ctx, streams: streams{err: &stderr}}
		begun, calls := time.Now(), 0
		last, err := packageChange{Wait: 150 * time.Second}.follow(a, "installed", func(wait time.Duration) (packageAnswer, error) {
			if wait > packageWait {
				t.Errorf("a call waits for %v, want at most %v", wait, packageWait)
			}
			calls++
			time.Sleep(wait)
			return answerOf(1, 0, 0), nil
		})
		if took := time.Since(begun); took != 150*time.Second || calls != 3 || last == nil || err != nil || stderr.Len() > 0 {
			t.Errorf("it took %v and %d calls, and returned %v (error %v); it said %q\nwant an answer after 2m30s and 3 calls", took, calls, last, err, &stderr)
		}

		calls = 0
		stopping := func(time.Duration) (packageAnswer, error) {
			if calls++; calls == 1 { // before its wait is over
				return answerOf(1, 0, 0), nil
			}
			return nil, status.Error(codes.Unavailable, "gone")
		}
		last, err = packageChange{Wait: time.Second}.follow(a, "installed", stopping)
		if code := report(a.streams, err); code != 3 || last == nil || !strings.Contains(stderr.String(), "; the workers go on") {
			t.Errorf("the coordinator stops: exit code %d, the last answer is %v; it said\n%s\nwant 3, an answer, and that the workers go on", code, last, &stderr)
		}
		stderr.Reset()

		calls = 0
		failing := func(time.Duration) (packageAnswer, error) {
			if calls++; calls%2 == 1 {
				return answerOf(1, 0, 0), nil
			}
			return nil, status.Error(codes.DeadlineExceeded, "too late")
		}
		last, err = packageChange{Wait: time.Hour}.follow(a, "installed", failing)
		code := report(a.streams, err)
		if want := "error: no answer in time; the workers go on with what they were asked\nhint: " + hintPackages + "\n"; code != 3 || stderr.String() != want || last == nil {
			t.Errorf("exit code %d, the last answer is %v; it said\n%s\nwant 3, an answer, and\n%s", code, last, &stderr, want)
		}

		stderr.Reset()
		calls = 1
		last, err = packageChange{Wait: time.Hour}.follow(a, "installed", failing)
		code = report(a.streams, err)
		if want := "error: no answer in time; if workers were asked, they go on\nhint: " + hintPackages + `, "lessor audit list" whether they were asked` + "\n"; code != 3 || stderr.String() != want || last != nil {
			t.Errorf("the first call fails, exit code %d, and it returned %v; it said\n%s\nwant 3 and\n%s",
				code, last, &stderr, want)
		}

		for _, why := range []error{status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: refused"`), status.Error(codes.NotFound, "none")} {
			_, err = packageChange{Wait: time.Hour}.follow(a, "installed",
				func(time.Duration) (packageAnswer, error) { return nil, why })
			if !errors.Is(err, why) {
				t.Errorf("the first call fails with %v, and it returned %v, want only that", why, err)
			}
		}

		stderr.Reset()
		stop(&interruptedError{signal: os.Interrupt})
		_, err = packageChange{Wait: time.Hour}.follow(a, "installed", failing)
		code = report(a.streams, err)
		if want := "error: stopped by a signal: interrupt; the workers go on with what they were asked\nhint: " + hintPackages + "\n"; code != 130 || stderr.String() != want {
			t.Errorf("exit code %d; it said\n%s\nwant 130 and\n%s", code, &stderr, want)
		}
	})
}

// If the coordinator dies while the first call waits, nobody knows whether workers were asked, and
// the command says so.
func TestCoordinatorDiesWhilePackagesAreInstalled(t *testing.T) {
	t.Attr("rules", "W13")
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	open := make(chan net.Conn, 1)
	backend := answerWith(t, func(string, proto.Message) (proto.Message, error) {
		_ = (<-open).Close()
		return nil, status.Error(codes.Internal, "never heard")
	})
	go func() {
		front, err := lis.Accept()
		_ = lis.Close()
		if err != nil {
			return
		}
		back, err := net.Dial("tcp", backend)
		if err != nil {
			_ = front.Close()
			return
		}
		open <- front
		go func() { _, _ = io.Copy(front, back) }()
		_, _ = io.Copy(back, front)
		_ = back.Close()
	}()
	var stderr strings.Builder
	code := run([]string{"worker", "install", "p@1", "--all", "--addr", lis.Addr().String()},
		streams{out: io.Discard, err: &stderr})
	want := "; if workers were asked, they go on\nhint: " + hintPackages + `, "lessor audit list" whether they were asked` + "\n"
	if code != 3 || lastLines(stderr.String(), want) != want {
		t.Errorf("exit code %d; it said\n%s\nwant 3 and\n%s", code, &stderr, want)
	}
}
