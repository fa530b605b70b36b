package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
)

// pages answers the calls of a bulk command with one result after the other, and records the page
// tokens of the calls.
type pages struct {
	results []*lessorv1.BatchResult
	tokens  []string
	end     error // of the call after them
}

func (p *pages) call(_ context.Context, token string) (bulkAnswer, error) {
	if p.tokens = append(p.tokens, token); len(p.tokens) > len(p.results) {
		return nil, p.end
	}
	return &lessorv1.BatchCancelTasksResponse{Result: p.results[len(p.tokens)-1]}, nil
}

// T9: a bulk command repeats the call until an answer has no page token, and prints the sum of all
// answers. A call that changed nothing is no progress.
func TestBulkCommandReadsAllPages(t *testing.T) {
	p := &pages{results: []*lessorv1.BatchResult{
		{Changed: 2, Skipped: 1, NextPageToken: "x"}, {NextPageToken: "y"}, {Skipped: 1, NextPageToken: "z"}, {Changed: 3},
	}}
	var out, err bytes.Buffer
	if e := changeAll(&app{ctx: t.Context(), streams: streams{out: &out, err: &err}}, "deleted", nil, p.call); e != nil {
		t.Fatal(e)
	}
	if want := []string{"", "x", "y", "z"}; !slices.Equal(p.tokens, want) {
		t.Errorf("called with the tokens %q, want %q", p.tokens, want)
	}
	if got, want := out.String(), "5 deleted, 2 skipped\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	if got, want := err.String(), "2 deleted, 1 skipped so far\n2 deleted, 2 skipped so far\n"; got != want {
		t.Errorf("standard error has %q, want %q", got, want)
	}
}

// X5: only a command that has found no task asks whether there is a run of that name: the change
// needs no quota, the question does.
func TestBulkCommandAsksForTheRunOnlyAfterwards(t *testing.T) {
	missing := errors.New("no such run")
	for name, tt := range map[string]struct {
		result *lessorv1.BatchResult
		want   error
	}{
		"changed": {&lessorv1.BatchResult{Changed: 1}, nil}, "skipped": {&lessorv1.BatchResult{Skipped: 1}, nil}, "none": {&lessorv1.BatchResult{}, missing},
	} {
		p := &pages{results: []*lessorv1.BatchResult{tt.result}}
		var out bytes.Buffer
		err := changeAll(&app{ctx: t.Context(), streams: streams{out: &out, err: &out}}, "deleted",
			func() error { return missing }, p.call)
		if !errors.Is(err, tt.want) || len(p.tokens) != 1 || (out.Len() == 0) != (tt.want != nil) {
			t.Errorf("%s: after %d calls %v, and %q; want %v", name, len(p.tokens), err, &out, tt.want)
		}
	}
}

// T9: if a call fails, the error says how much was done before it, and that it may be more if the
// call may have done a part. Nothing is printed as the final sum. A command that has changed
// nothing says only why.
func TestBulkCommandSaysWhatWasDoneBeforeAnError(t *testing.T) {
	full := refusal.Status(&quota.Error{Limit: quota.Tasks, Of: "tenant", Most: "5", Used: 5, Asked: 1, Wait: time.Second})
	revoked := &auth.Error{Problem: auth.Revoked}
	const readError = `connection error: desc = "error reading from server: EOF"`
	lost := status.Error(codes.Unavailable, readError)
	leaving := status.Error(codes.Unavailable,
		"closing transport due to: "+readError+`, received prior goaway: code: NO_ERROR, debug data: "graceful_stop"`)
	silent := status.Error(codes.Unavailable, `connection error: desc = "keepalive ping failed to receive ACK within timeout"`)
	broken := refusal.Status(&store.CommitError{Err: errors.New("disk on fire")})
	away := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: connection refused"`)
	proxy := status.Error(codes.Unavailable, "unexpected HTTP status code received from server: 504 (Gateway Timeout)")
	two := []*lessorv1.BatchResult{{Changed: 7000, Skipped: 1, NextPageToken: "x"}, {Changed: 1000, NextPageToken: "y"}}
	for name, tt := range map[string]struct {
		results []*lessorv1.BatchResult
		err     error
		want    string
	}{
		"refused":                  {two, full, "error: 8000 deleted, 1 skipped, then: the tenant's quota "},
		"refused at once":          {nil, full, "error: the tenant's quota "},
		"stopped in the middle":    {two, refusal.After(200, revoked), "error: at least 8200 deleted, 1 skipped, then: the credential was revoked"},
		"in the middle at once":    {nil, refusal.After(200, revoked), "error: at least 200 deleted, then: the credential was revoked"},
		"the answer is lost":       {two, lost, "error: at least 8000 deleted, 1 skipped, then: cannot reach"},
		"it leaves without one":    {two, leaving, "error: at least 8000 deleted, 1 skipped, then: cannot reach"},
		"the first answer is lost": {nil, lost, "error: perhaps some deleted, then: cannot reach"},
		"the connection is silent": {two, silent, "error: at least 8000 deleted, 1 skipped, then: cannot reach"},
		"a proxy has no answer":    {two, proxy, "error: at least 8000 deleted, 1 skipped, then: "},
		"the disk has failed":      {two, broken, "error: at least 8000 deleted, 1 skipped, then: the coordinator is unavailable"},
		"no connection":            {two, away, "error: 8000 deleted, 1 skipped, then: cannot reach"},
		"no connection at once":    {nil, away, "error: cannot reach"},
	} {
		p := &pages{results: tt.results, end: tt.err}
		var out, said bytes.Buffer
		err := changeAll(&app{ctx: t.Context(), streams: streams{out: &out, err: io.Discard}}, "deleted", nil, p.call)
		code := report(streams{err: &said}, err)
		if want := explain(tt.err).code; code != want || out.Len() > 0 || !strings.HasPrefix(said.String(), tt.want) {
			t.Errorf("%s: exit code %d with %q and %q, want %d and %q", name, code, &out, &said, want, tt.want)
		}
		if again := strings.Contains(said.String(), "the same command goes on with the rest"); again != strings.Contains(tt.want, ", then: ") {
			t.Errorf("%s: %q", name, &said)
		}
	}
}
