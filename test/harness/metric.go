package harness

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Metric reads one of the metrics of the coordinator that serves HTTP at addr. token is that of a
// viewer or an operator; empty: none is needed.
func Metric(ctx context.Context, t testing.TB, addr, token, name string) float64 {
	t.Helper()
	for line := range strings.Lines(Page(ctx, t, addr, token, "/metrics")) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// Page returns what the coordinator that serves HTTP at addr has at a path. token is as for Metric.
func Page(ctx context.Context, t testing.TB, addr, token, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Close = true // a kept connection would be counted
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, res.Status, err)
	}
	return string(text)
}
