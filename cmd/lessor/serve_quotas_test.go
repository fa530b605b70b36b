package main

import (
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/quota"
)

// X5: quotas are set for every tenant, for every credential, for one tenant, and for every
// credential of one tenant. The name of a tenant may have dots.
func TestQuotaFlags(t *testing.T) {
	t.Attr("rules", "X5")
	got, err := quotaFlags{
		Quota:           map[string]string{"calls": "300/m", "tasks": "100", "watches": "none"},
		QuotaCredential: map[string]string{"frames": "5/s:20", "submits": "none"},
		QuotaTenant:     map[string]string{"a.b.tasks": "7", "a.b.calls": "2/s", "a.b.credential.streams": "3"},
	}.read()
	want := quota.Config{
		Tenant:      quota.Limits{Calls: quota.Rate{PerSecond: 5}, Tasks: 100, Watches: quota.Unlimited},
		Credential:  quota.Limits{Frames: quota.Rate{PerSecond: 5, Burst: 20}, Submits: quota.Rate{PerSecond: math.Inf(1)}},
		Tenants:     map[string]quota.Limits{"a.b": {Calls: quota.Rate{PerSecond: 2}, Tasks: 7}},
		Credentials: map[string]quota.Limits{"a.b": {Streams: 3}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the quotas are %+v (error %v), want %+v", got, err, want)
	}
}

// A quota that cannot be read is refused with an error that names its flag and quotes it.
func TestBadQuotaFlags(t *testing.T) {
	for _, name := range []string{"calls", "tasks"} {
		for _, value := range []string{"", "0", "-1", "NaN", "Inf", "many", "0/s", "5/s:0", "5/s:", "5/s:-1"} {
			_, err := quotaFlags{Quota: map[string]string{name: value}}.read()
			wantFlagError(t, err, "--quota: ", name+"="+value)
			_, err = quotaFlags{QuotaCredential: map[string]string{name: value}}.read()
			wantFlagError(t, err, "--quota-credential: ", name+"="+value)
			_, err = quotaFlags{QuotaTenant: map[string]string{"acme." + name: value}}.read()
			wantFlagError(t, err, "--quota-tenant: ", "acme."+name+"="+value)
		}
	}
	_, err := quotaFlags{Quota: map[string]string{"call": "5/s"}}.read()
	wantFlagError(t, err, "--quota: call=5/s: ", "calls, submits, frames, sessions, streams, watches, waits, tasks")
	for _, name := range []string{"calls", ".calls", ".credential.calls", "acme.", "acme"} {
		_, err := quotaFlags{QuotaTenant: map[string]string{name: "5/s"}}.read()
		wantFlagError(t, err, "--quota-tenant: ", name)
	}
}

func wantFlagError(t *testing.T, err error, begin, quoted string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), begin) || !strings.Contains(err.Error(), quoted) {
		t.Errorf("error %v, want one that begins with %q and has %q", err, begin, quoted)
	}
}

// X5: connections do not use up the files that the process may open: the store and the next probe
// need some, too.
func TestDefaultOfConnections(t *testing.T) {
	for files, want := range map[int]int{0: 0, 1: 1, 64: 32, 500: 250, 1000: 500, 1024: 524, 20_000: 19_500, 50_500: 0, 1 << 20: 0} {
		if got := connectionsWith(files); got != want {
			t.Errorf("with %d open files: %d connections, want %d", files, got, want)
		}
	}
}

// X5: the log says at the start if the process may open so few files that hardly any connections
// fit, or fewer than were asked for: later, a caller who is refused sees only that the connection
// ends.
func TestFewFilesAreInTheLog(t *testing.T) {
	t.Attr("rules", "X5")
	for _, tt := range []struct {
		asked, files int
		want         string
	}{
		{0, 0, ""},
		{0, 1000, ""},
		{0, 1 << 20, ""},
		{0, 999, "max_connections=499 files=999"},
		{0, 40, "max_connections=20 files=40"},
		{60_000, 0, ""},
		{20, 40, ""},
		{21, 40, "max_connections=21 files=40 room_for=20"},
		{500, 1000, ""},
		{60_000, 60_499, "max_connections=60000 files=60499 room_for=59999"},
	} {
		var log strings.Builder
		maxFlags{Connections: tt.asked}.warnFewFiles(slog.New(slog.NewTextHandler(&log, nil)), tt.files)
		if got := log.String(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || got != "" && !strings.Contains(got, "ulimit -n") {
			t.Errorf("--max-connections %d with %d files: the log has %q, want %q", tt.asked, tt.files, got, tt.want)
		}
	}
}
