package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/internal/httpserver"
	"github.com/lessor-dev/lessor/internal/strictjson"
)

// contentEncoding is the header of a compressed body. The API refuses compressed bodies, because a
// few bytes could expand to very many.
const contentEncoding = "Content-Encoding"

// body reads the body of a request.
func (a *api) body(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	if coding := strings.Join(r.Header.Values(contentEncoding), ", "); coding != "" &&
		!strings.EqualFold(coding, "identity") {
		return nil, invalid(contentEncoding, "is %q; send the body without an encoding", strictjson.Clip(coding))
	}
	if r.ContentLength > a.MaxBody && asksFirst(r) {
		return nil, tooLong(a.MaxBody)
	}
	a.giveTime(w, r)
	body, err := io.ReadAll(http.MaxBytesReader(plainWriter(w), r.Body, a.MaxBody))
	if err != nil {
		hearOut(r, mostHeardOut)
		return nil, unread(err)
	}
	return body, nil
}

// bodyStep is the length of a body, in bytes, for which the server gives each request time to
// arrive. A longer one gets the same for each bodyStep: with a large --limit-output, a slow worker
// could otherwise never report.
const bodyStep = 4 << 20

// giveTime extends the deadlines of an admitted request if its body may be long.
func (a *api) giveTime(w http.ResponseWriter, r *http.Request) {
	length := r.ContentLength
	if length < 0 || length > a.MaxBody { // its length is not known, or it is not read to its end
		length = a.MaxBody
	}
	if length <= bodyStep {
		return
	}
	until := time.Now().Add(time.Duration((length+bodyStep-1)/bodyStep) * httpserver.ReadTimeout)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(until) // an error means that the writer has no deadlines
	_ = control.SetWriteDeadline(until.Add(writeTimeout))
}

func unread(err error) *problem {
	var (
		tooLarge *http.MaxBytesError
		timeout  net.Error
	)
	switch {
	case errors.As(err, &tooLarge):
		return tooLong(tooLarge.Limit)
	case errors.As(err, &timeout) && timeout.Timeout():
		return errSlow
	}
	return errBroken
}

func tooLong(limit int64) *problem {
	return newProblem(kindTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", limit))
}

// mostHeardOut is how much of a body that is too large is read and discarded, in bytes.
const mostHeardOut = 64 << 20

// hearOut reads and discards the rest of the body of a refused request, up to most bytes and within
// the server's read timeout. Most clients read the answer only after they have sent the whole body.
// If the connection were closed before that, they would not get the answer and would send the same
// again.
func hearOut(r *http.Request, most int64) {
	if r.Method == http.MethodPost && !asksFirst(r) {
		_, _ = io.CopyN(io.Discard, r.Body, most) // an error does not change the answer
	}
}

// asksFirst reports whether a caller waits for permission to send its body (header Expect) and has
// sent the length of the body.
func asksFirst(r *http.Request) bool { return r.Header.Get("Expect") != "" && r.ContentLength >= 0 }
