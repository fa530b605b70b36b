package readiness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// tryTimeout is how long one try may take.
	tryTimeout = 5 * time.Second
	// firstWait and lastWait are the waits before the second and the last try. Each is twice as
	// long as the one before it.
	firstWait, lastWait = 100 * time.Millisecond, 400 * time.Millisecond
	// maxBody is how much of an answer is read, maxWords how much of its text is kept, in bytes.
	maxBody, maxWords = 64 << 10, 1 << 10
)

// errNoAnswer: a try took too long.
var errNoAnswer = fmt.Errorf("no answer within %v", tryTimeout)

// StatusError is an answer of the supervisor other than 200. Below 500 a repeat is in vain, and the
// process should end: 400 means that the notification is wrong, 401 that the token is, 409 that
// this process has said something else before, drains or is being stopped, or that another process
// has the name of this worker.
type StatusError struct {
	// Status is the HTTP status.
	Status int
	// Message is what the supervisor said, cut to 1,024 bytes; may be empty.
	Message string
}

func (e *StatusError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	if e.Message == "" {
		return text
	}
	return text + ": " + e.Message
}

// post sends a notification until it is answered, as P3 has it.
func (n *Notifier) post(ctx context.Context, to *url.URL, body *notification) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	var failure error // of the last try that ctx has not cut short
	for wait := firstWait; ; wait *= 2 {
		err := n.try(ctx, to, data)
		if answer, ok := errors.AsType[*StatusError](err); err == nil || ok && answer.Status < 500 {
			return err
		}
		if ctx.Err() == nil {
			if failure = err; wait > lastWait {
				return failure
			}
			pause(ctx, wait)
		}
		switch {
		case ctx.Err() == nil:
		case failure == nil:
			return ctx.Err()
		default:
			return fmt.Errorf("%w; before that: %w", ctx.Err(), failure)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// try sends a notification once.
func (n *Notifier) try(ctx context.Context, to *url.URL, data []byte) error {
	timed, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(timed, http.MethodPost, to.String(), bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+*n.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := n.client.Do(request)
	switch {
	case err != nil && timed.Err() != nil && ctx.Err() == nil:
		return errNoAnswer // err would look as if the caller's ctx had ended
	case err != nil:
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	return &StatusError{response.StatusCode, n.words(response.Body)}
}

// words returns what an answer says: the "error" of its JSON, or else its text. A server that
// repeats the token there does not get it into a log.
func (n *Notifier) words(body io.Reader) string {
	data, _ := io.ReadAll(io.LimitReader(body, maxBody)) // what has arrived says more than an error
	var answer struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(data, &answer) != nil || answer.Error == "" {
		answer.Error = strings.TrimSpace(string(data))
	}
	return clip(strings.ReplaceAll(answer.Error, *n.token, "[token]"), maxWords)
}
