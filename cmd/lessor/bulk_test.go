package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// pages answers the calls of a bulk command with one result after the other, and records the page tokens of the calls.
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

// T9: a bulk command repeats the call until an answer has no page token, and prints the sum of all answers. A call that changed nothing is no progress.
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

// X5: only a command that has found no task asks whether there is a run of that name: the change needs no quota, the question does.
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
		err := changeAll(&app{ctx: t.Context(), streams: streams{out: &out, err: &out}}, "deleted", func() error { return missing }, p.call)
		if !errors.Is(err, tt.want) || len(p.tokens) != 1 || (out.Len() == 0) != (tt.want != nil) {
			t.Errorf("%s: after %d calls %v, and %q; want %v", name, len(p.tokens), err, &out, tt.want)
		}
	}
}

// T9: if a call fails, the command has printed how much was done before it, and prints no final sum.
func TestBulkCommandReportsProgressBeforeAnError(t *testing.T) {
	p := &pages{results: []*lessorv1.BatchResult{{Changed: 2, NextPageToken: "x"}}}
	var out, err bytes.Buffer
	if e := changeAll(&app{ctx: t.Context(), streams: streams{out: &out, err: &err}}, "deleted", nil, p.call); e == nil {
		t.Error("changeAll = nil, want the error of the second call")
	}
	if got, want := out.String()+err.String(), "2 deleted so far\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}
