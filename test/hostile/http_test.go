//go:build faults

package hostile

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// httpAttacks are abuses of HTTP/1 on the HTTP port.
var httpAttacks = []attack{
	{"pipelining", 4, 2_000, pipelining},
	{"requests of two readings", 4, 100, twoReadings},
	{"HTTP headers without an end", 2, 8, func(a *attackRun) {
		a.sendUntilAnswered("GET /healthz HTTP/1.1\r\nHost: lessor\r\n", "X-A: "+strings.Repeat("a", 1000)+"\r\n", "431")
	}},
	{"a request line without an end", 2, 8, func(a *attackRun) { a.sendUntilAnswered("GET /", strings.Repeat("a", 1000), "431") }},
	{"a body without an end", 2, 2, func(a *attackRun) {
		a.sendUntilAnswered("POST /v1/tasks HTTP/1.1\r\nHost: lessor\r\nAuthorization: Bearer "+a.h.tokens[evil]+"\r\nTransfer-Encoding: chunked\r\n\r\n",
			"8000\r\n"+strings.Repeat(" ", 0x8000)+"\r\n", "413")
	}},
	{"a body without an end, not authenticated", 2, 8, func(a *attackRun) {
		a.sendUntilAnswered("POST /v1/tasks HTTP/1.1\r\nHost: lessor\r\nTransfer-Encoding: chunked\r\n\r\n",
			"8000\r\n"+strings.Repeat(" ", 0x8000)+"\r\n", "401")
	}},
	{"malformed JSON", 2, 22, malformedJSON},
}

// pipelining sends many requests in one piece, and checks every answer.
func pipelining(a *attackRun) {
	const n = 500
	for !a.ended() {
		conn := a.dial(a.h.http)
		if conn == nil {
			return
		}
		go func() {
			_, _ = io.WriteString(conn, strings.Repeat("GET /healthz HTTP/1.1\r\nHost: lessor\r\n\r\n", n))
		}()
		in := bufio.NewReader(conn)
		for range n {
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				if !a.ended() {
					a.t.Errorf("a pipelined request: %v", err)
				}
				break
			}
			text, _ := io.ReadAll(res.Body)
			if _ = res.Body.Close(); !a.ended() && string(text) != "ok\n" {
				a.t.Errorf("a pipelined request: %s %q", res.Status, text)
			}
			a.hit(1)
		}
		_ = conn.Close()
	}
}

// hidden is a request that is sent right behind another one. A server that misreads the length of
// the first request would answer it.
const hidden = "GET /healthz HTTP/1.1\r\nHost: lessor\r\n\r\n"

// ambiguous returns requests whose end two servers could see at different places. The coordinator
// must refuse each, and read nothing behind it.
func ambiguous() []string {
	headers := func(lines ...string) string {
		return "POST /v1/tasks HTTP/1.1\r\nHost: lessor\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
	}
	return []string{
		headers("Content-Length: 0", "Content-Length: "+strconv.Itoa(len(hidden))),
		headers("Content-Length: 0, " + strconv.Itoa(len(hidden))),
		headers("Content-Length: +0"), headers("Content-Length: -1"), headers("Content-Length: 0x0"),
		headers("Content-Length: 0 0"),
		headers("Content-Length: 99999999999999999999"),
		headers("Content-Length : 0"), headers("Transfer-Encoding : chunked") + "0\r\n\r\n",
		headers("Transfer-Encoding: xchunked"), headers("Transfer-Encoding: chunked, identity"),
		headers("Transfer-Encoding: identity"),
		headers("Transfer-Encoding: gzip, chunked") + "0\r\n\r\n",
		headers("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + "0\r\n\r\n",
		headers("Transfer-Encoding: \x0bchunked") + "0\r\n\r\n",
		headers("Transfer-Encoding: chunked") + "0x0\r\n\r\n", headers("Transfer-Encoding: chunked") + "-0\r\n\r\n",
		headers("Transfer-Encoding: chunked") + "10000000000000000\r\n", headers("Transfer-Encoding: chunked") + "g\r\n",
		headers("Host: other"), headers("X: a\x00b"), headers("X\x00: a"), headers("X Y: a"), headers(": a"), headers("X"),
		"POST /v1/tasks HTTP/1.1\r\n\r\n", "POST  /v1/tasks HTTP/1.1\r\nHost: lessor\r\n\r\n", "POST /v1/tasks HTTP/1.1 x\r\nHost: lessor\r\n\r\n",
		"POST /v1/tasks HTTP/2.0\r\nHost: lessor\r\n\r\n", "POST /v1/tasks\r\n\r\n", "\x00\r\n\r\n", "P\x7fST /v1/tasks HTTP/1.1\r\nHost: lessor\r\n\r\n",
		"POST /v1/tasks HTTP/1.0\r\nHost: lessor\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	}
}

// twoReadings checks that each of them gets exactly one answer, and that the hidden request gets
// none.
func twoReadings(a *attackRun) {
	forms := ambiguous()
	for i := 0; !a.ended(); i++ {
		form := forms[i%len(forms)]
		conn := a.dial(a.h.http)
		if conn == nil {
			return
		}
		_, _ = io.WriteString(conn, form+hidden)
		answer, err := io.ReadAll(conn)
		_ = conn.Close()
		if a.ended() {
			return
		}
		first, _, _ := strings.Cut(string(answer), "\r\n")
		a.countAnswer(first)
		if n := strings.Count(string(answer), "HTTP/1."); n != 1 || strings.Contains(string(answer), "200 OK") || err != nil && !errors.Is(err, net.ErrClosed) && n == 0 {
			a.t.Errorf("%q is answered by %q (%v), want one refusal", form, answer, err)
		}
		a.hit(1)
	}
}

// sendUntilAnswered sends a request without an end until the coordinator answers and ends the
// connection.
func (a *attackRun) sendUntilAnswered(first, more, want string) {
	for !a.ended() {
		conn := a.dial(a.h.http)
		if conn == nil {
			return
		}
		answered := make(chan []byte, 1)
		go func() {
			answer, _ := io.ReadAll(conn)
			_ = conn.Close()
			answered <- answer
		}()
		for _, err := io.WriteString(conn, first); err == nil; {
			_, err = io.WriteString(conn, more)
		}
		answer := <-answered
		if a.ended() {
			return
		}
		line, _, _ := strings.Cut(string(answer), "\r\n")
		a.countAnswer(line) // empty if the connection was reset before the answer was read
		if line != "" && !strings.HasPrefix(line, "HTTP/1.1 "+want) {
			a.t.Errorf("answered by %q, want %s", line, want)
		}
		a.hit(1)
	}
}

// malformedJSON checks that each body is refused with 400, and so is a compressed body. Only that
// one may have a Content-Encoding: with that header the coordinator refuses a request before it
// reads the body.
func malformedJSON(a *attackRun) {
	compressed := string(gzipped(16 << 20))
	bodies := []string{
		strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000), strings.Repeat("[", 1_000_000),
		"{\"queue\": \"\xff\xfe\"}",
		`{"queue": "q", "queue": "r"}`, `{"queue": 1e999}`, `{"queue": "` + strings.Repeat(`\u0000`, 1000) + `"}`,
		compressed, "\xef\xbb\xbf{}",
		strings.Repeat(`{"queue":"q"}`, 1000), `{"queue": "q", "payload": ` + strings.Repeat("9", 1_000_000), "",
	}
	client := http.Client{Transport: &http.Transport{DialContext: attackerDialer.DialContext, DisableKeepAlives: true}}
	for i := 0; !a.ended(); i++ {
		body := bodies[i%len(bodies)]
		req, err := http.NewRequestWithContext(a.ctx, http.MethodPost, "http://"+a.h.http+"/v1/tasks", strings.NewReader(body))
		if err != nil {
			a.t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+a.h.tokens[evil])
		if body == compressed {
			req.Header.Set("Content-Encoding", "gzip")
		}
		res, err := client.Do(req)
		if err != nil {
			if !a.ended() {
				a.t.Errorf("body %.30q: %v", body, err)
			}
			continue
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if _ = res.Body.Close(); res.StatusCode != http.StatusBadRequest {
			a.t.Errorf("body %.30q: status %s, want 400", body, res.Status)
		}
		a.countAnswer(res.Status)
		a.hit(1)
	}
}
