package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// webRequest is an HTTP request.
type webRequest struct {
	method, path string
	params       map[string]string // in the path
	query        map[string]string
	header       map[string]string
	body         map[string]any
}

// set sets a field in the path, in the query, in a header or in the body.
func (r *webRequest) set(path []string, value string) {
	switch path[0] {
	case "path":
		r.params[path[1]] = value
	case "query":
		setParameter(r.query, path[1], value)
	case "header":
		r.header = map[string]string{path[1]: value}
	default:
		setMember(r.body, path[1:], value)
	}
}

// lists has the members that are lists of names or of objects; dictionaries those whose members
// have free names.
var (
	lists = map[string]bool{
		"queues": true, "types": true, "middlewareChain": true, "resourceRefs": true,
		"artifacts": true, "tasks": true,
	}
	dictionaries = map[string]bool{"labels": true}
)

func setParameter(m map[string]string, name, value string) {
	switch {
	case value == "":
		delete(m, name)
	case dictionaries[name]:
		m[name] = "label=" + value
	default:
		m[name] = value
	}
}

func setMember(m map[string]any, path []string, value string) {
	name := path[0]
	switch {
	case len(path) > 1 && lists[name]:
		if m[name] == nil {
			m[name] = []any{map[string]any{}}
		}
		setMember(m[name].([]any)[0].(map[string]any), path[1:], value)
	case len(path) > 1:
		if m[name] == nil {
			m[name] = map[string]any{}
		}
		setMember(m[name].(map[string]any), path[1:], value)
	case value == "":
		delete(m, name)
	case lists[name]:
		m[name] = []any{value}
	case dictionaries[name]:
		m[name] = map[string]any{"label": value}
	default:
		m[name] = value
	}
}

// webAnswer is an HTTP response; open says that its body had not ended.
type webAnswer struct {
	status int
	body   string
	open   bool
	err    error
}

// shortWait is how long a request waits whose answer comes after a wait.
const shortWait = time.Millisecond

// send makes a request, and reads what comes before more fake time has to pass than a shortWait.
func (h *host) send(authorization []string, r *webRequest) (a webAnswer) {
	h.t.Helper()
	path := r.path
	for name, value := range r.params {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	query := url.Values{}
	for name, value := range r.query {
		query.Set(name, value)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(must(json.Marshal(r.body))(h.t))
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	req := must(http.NewRequestWithContext(ctx, r.method, "http://coordinator"+path, body))(h.t)
	req.Header["Authorization"] = authorization
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		res, err := h.web.Do(req)
		if a.err = err; err != nil {
			return
		}
		a.status = res.StatusCode
		text, _ := io.ReadAll(res.Body) // until its end, or until the cancel below
		a.body = string(text)
		_ = res.Body.Close()
	}()
	synctest.Wait()
	if r.query["waitMs"] != "" {
		time.Sleep(shortWait)
		synctest.Wait()
	}
	select {
	case <-ended:
	default:
		a.open = true
		cancel()
		<-ended
		synctest.Wait()
	}
	return a
}

// request sends the request of a cell.
func (h *host) request(c credential, r request) (a answer) {
	h.t.Helper()
	res := h.send(c.headers, r.(*webRequest))
	if res.err != nil {
		h.t.Error(res.err)
	}
	a.summary = []string{fmt.Sprint(res.status)}
	a.text = fmt.Sprint(res.status, " ", res.body)
	body := map[string]any{}
	if json.Unmarshal([]byte(res.body), &body) == nil {
		a.code, _ = body["code"].(string)
		a.summary = append(a.summary, summaryOfJSON(body)...)
		a.randomValues = randomValuesInJSON(body, nil)
	}
	if res.open {
		a.summary = append(a.summary, "and goes on")
	}
	a.refusal = fmt.Sprint(res.status, " ", a.code)
	return a
}

func summaryOfJSON(body map[string]any) (words []string) {
	for _, name := range []string{"code", "verdict", "reason"} {
		if text, ok := body[name].(string); ok && (name != "reason" || body["verdict"] != nil) {
			words = append(words, text)
		}
	}
	if created, _ := body["created"].(bool); created {
		words = append(words, "created")
	}
	for _, name := range []string{"assignments", "tasks", "results"} {
		if all, ok := body[name].([]any); ok {
			words = append(words, fmt.Sprint(len(all), " ", name))
		}
	}
	return words
}

// randomValuesInJSON returns the random values in an answer.
func randomValuesInJSON(value any, found []string) []string {
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			found = randomValuesInJSON(one, found)
		}
	case map[string]any:
		for name, one := range value {
			if text, ok := one.(string); ok && randomFields[protoreflect.Name(snake(name))] {
				found = append(found, text)
			}
			found = randomValuesInJSON(one, found)
		}
	}
	return found
}
