package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// pages answers a bulk verb in parts, and notes the tokens that it was called with.
type pages struct {
	results []*lessorv1.BatchResult
	tokens  []string
}

func (p *pages) call(_ context.Context, token string) (bulkAnswer, error) {
	if p.tokens = append(p.tokens, token); len(p.tokens) > len(p.results) {
		return nil, errors.New("the line is cut")
	}
	return &lessorv1.BatchCancelTasksResponse{Result: p.results[len(p.tokens)-1]}, nil
}

// T9: a bulk verb goes on until there is no further page, and tells the sum.
func TestABulkVerbGoesOnToItsEnd(t *testing.T) {
	p := &pages{results: []*lessorv1.BatchResult{
		{Changed: 2, Skipped: 1, NextPageToken: "x"}, {NextPageToken: "y"}, {Changed: 3},
	}}
	var out, err bytes.Buffer
	if e := sweep(&app{ctx: t.Context(), streams: streams{out: &out, err: &err}}, "deleted", p.call); e != nil {
		t.Fatal(e)
	}
	if want := []string{"", "x", "y"}; !slices.Equal(p.tokens, want) {
		t.Errorf("called with the tokens %q, want %q", p.tokens, want)
	}
	if got, want := out.String(), "5 deleted, 1 skipped\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	if got, want := err.String(), "2 deleted, 1 skipped so far\n2 deleted, 1 skipped so far\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

// T9: what was done before a call failed has been told, and no sum pretends that all is done.
func TestABulkVerbThatIsCutShort(t *testing.T) {
	p := &pages{results: []*lessorv1.BatchResult{{Changed: 2, NextPageToken: "x"}}}
	var out, err bytes.Buffer
	if e := sweep(&app{ctx: t.Context(), streams: streams{out: &out, err: &err}}, "deleted", p.call); e == nil {
		t.Error("no error")
	}
	if got := out.String() + err.String(); got != "2 deleted so far\n" {
		t.Errorf("said %q", got)
	}
}
