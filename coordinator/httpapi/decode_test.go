package httpapi

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A time or bytes with JSON escapes are read like those without; some encoders write "+" as an
// escape in every string.
func TestEscapedTextsAreRead(t *testing.T) {
	var m completedRequest
	body := `{"completedAt": "2026-01-15T10:00:00\u002b02:00", "startedAt": null, "outputBase64": "\u002b\/8\u003d"}`
	if p := parse([]byte(body), &m, lenient, runtime.Gosched); p != nil {
		t.Fatal(p.body.Message)
	}
	if want := time.Date(2026, 1, 15, 8, 0, 0, 0, time.UTC); !m.CompletedAt.Equal(want) || !m.StartedAt.IsZero() || string(m.OutputBase64) != "\xfb\xff" {
		t.Errorf("read %v, %v and %q, want %v, no time and \xfb\xff", m.CompletedAt, m.StartedAt, m.OutputBase64, want)
	}
}

// A null means that the field is not sent. Inside a list or a map a null is refused, because
// package json would read it as 0 or "". A callback is not refused for a null: an entry that is
// null is left out.
func TestNullMeansNotSent(t *testing.T) {
	for body, field := range map[string]string{
		`{"requirements": {"features": [null]}}`:       "requirements.features[0]",
		`{"requirements": {"resources": {"a": null}}}`: "requirements.resources.a",
		`{"resourceRefs": [null]}`:                     "resourceRefs[0]",
		`{"requirements": null, "payload": [null]}`:    "",
	} {
		got := ""
		if p := parse([]byte(body), &submitRequest{}, strict, runtime.Gosched); p != nil {
			got = p.body.Field
		}
		if got != field {
			t.Errorf("%s: the refused field is %q, want %q", body, got, field)
		}
	}
	var m completedRequest
	if p := parse([]byte(`{"attempt": 1, "metrics": {"a": null, "b": 0}, "artifacts": [{"metadata": {"a": null, "b": ""}}]}`), &m, lenient, runtime.Gosched); p != nil {
		t.Fatal(p.body.Message)
	}
	if got := fmt.Sprint(m.Metrics, m.Artifacts[0].Metadata); got != "map[b:0] map[b:]" {
		t.Errorf("read %s, want only what is not null", got)
	}
	var h heartbeatRequest
	if p := parse([]byte(`{"attempt": 1, "metrics": {"a": null}}`), &h, lenient, runtime.Gosched); p != nil || len(h.Metrics) != 0 {
		t.Errorf("read %v (%+v), want no metric", h.Metrics, p)
	}
}

// S4: a category that must be one is refused with the words that the caller knows, also if it is
// empty.
func TestEmptyCategoryIsRefusedByItsName(t *testing.T) {
	t.Attr("rules", "S4")
	_, p := (&retryPolicy{NonRetryableCategories: []string{"TIMEOUT", ""}}).proto()
	const want = `retryPolicy.nonRetryableCategories[1]: is "", which is not a known category; they are USER_CODE, `
	if p == nil || !strings.HasPrefix(p.body.Message, want) {
		t.Errorf("the problem is %+v, want one that begins with %s", p, want)
	}
	if m, p := (&taskError{}).proto(); p != nil || m.GetCategory() != 0 {
		t.Errorf("an error without a category becomes %v (%+v), want one of no category", m, p)
	}
}

// X5: a long body waits while others are parsed. A short one does not.
func TestLongBodiesTakeTurns(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		a := &api{long: make(chan struct{}, 1)}
		a.long <- struct{}{}
		var parsed atomic.Int32
		for _, length := range []int{longBody, longBody / 2} {
			go func() {
				if p := a.parse([]byte(`{"queue":"q","payload":"`+strings.Repeat("x", length)+`"}`), new(submitRequest), strict); p != nil {
					t.Errorf("%d bytes: %v", length, p)
				}
				parsed.Add(1)
			}()
		}
		for want := range int32(2) {
			if synctest.Wait(); parsed.Load() != want+1 {
				t.Errorf("%d bodies are parsed, want %d", parsed.Load(), want+1)
			}
			if want == 0 {
				<-a.long
			}
		}
		if len(a.long) > 0 {
			t.Error("a body that was parsed keeps its place")
		}
	})
}

// X5: while a long body is parsed, another one waits for a few of its values, not for all of them:
// it may be that of another tenant.
func TestLongBodiesDoNotWaitForWholeBodies(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		a := &api{long: make(chan struct{}, 1)}
		a.long <- struct{}{}
		parsed := make(chan string, 4)
		for _, c := range []struct{ name, payload string }{
			{"numbers", "[1" + strings.Repeat(",1", longBody) + "]"}, {"numbers", "[2" + strings.Repeat(",2", longBody) + "]"}, {"text", `"` + strings.Repeat("x", longBody) + `"`},
		} {
			go func() {
				if p := a.parse([]byte(`{"queue":"q","payload":`+c.payload+`}`), new(submitRequest), strict); p != nil {
					t.Errorf("%s: %v", c.name, p)
				}
				parsed <- c.name
			}()
			synctest.Wait() // it waits behind those before it
		}
		<-a.long
		if first := <-parsed; first != "text" {
			t.Errorf("a body of %s was parsed first, want the one that has a single value", first)
		}
		<-parsed
		<-parsed
	})
}
