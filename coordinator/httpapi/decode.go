package httpapi

import (
	"context"
	"net/http"
	"runtime"

	"github.com/lessor-dev/lessor/internal/strictjson"
)

// A worker may be newer than its coordinator. Unknown fields in its reports are ignored, because
// the worker would lose its work if the report were refused. In any other request an unknown field
// is refused, because the coordinator would not do what the field asks for.
const (
	lenient = strictjson.Lenient
	strict  = strictjson.Strict
)

// decode reads the body of a request into a struct. It refuses a body that two programs could read
// differently (package strictjson).
func (a *api) decode(w http.ResponseWriter, r *http.Request, into any, s strictjson.Strictness) *problem {
	body, p := a.body(w, r)
	if p == nil && s == strict {
		p = noParameters(r)
	}
	if p != nil {
		return p
	}
	return a.parse(body, into, s)
}

// decodeIfSent is a strict decode of a body that may be left out.
func (a *api) decodeIfSent(w http.ResponseWriter, r *http.Request, into any) *problem {
	body, p := a.body(w, r)
	if p == nil {
		p = noParameters(r)
	}
	if p != nil || len(body) == 0 {
		return p
	}
	return a.parse(body, into, strict)
}

// longBody is from how many bytes on a body is parsed in turn with others, few at a time. Package
// json reads a string of any length without giving up the processor, which each of many such bodies
// would keep for 10 ms (docs/decisions/0031-long-calls-yield.md). Short bodies do not wait.
const longBody = 64 << 10

// parse parses a body. A long one begins when it is its turn, and after so many values lets those
// that wait have theirs: they may be of other tenants, and much shorter.
func (a *api) parse(body []byte, into any, s strictjson.Strictness) *problem {
	if len(body) <= longBody {
		return parse(body, into, s, runtime.Gosched)
	}
	take := func() { _ = a.long.Take(context.Background()) } // it fails only if a context ends
	take()
	defer a.long.Give()
	return parse(body, into, s, func() {
		a.long.Give()
		take()
	})
}

// parse parses a body, and calls pause now and then.
func parse(body []byte, into any, s strictjson.Strictness, pause func()) *problem {
	err := strictjson.Unmarshal(body, into, s, pause)
	if err == nil {
		return nil
	}
	p := newProblem(kindInvalid, codeInvalid, err.Error())
	p.body.Field = err.Field
	return p
}
