package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// taskResponse answers with a task.
type taskResponse struct {
	Task task `json:"task"`
}

// writeJSON answers with a body.
func writeJSON(w http.ResponseWriter, status int, body any) {
	writeHead(w, status)
	_ = encoderTo(w).Encode(body) // the caller is gone
}

// writeHead begins an answer with a body in JSON. No cache may store it, because it may hold
// tokens.
func writeHead(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

func encoderTo(w io.Writer) *json.Encoder {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder
}

// patient lifts the write deadline of a request until hurry is called: the answer may take long to
// come, but not to be sent to a client that does not read. The server itself lifts the read
// deadline at the end of the body; a body that does not end must not be waited for. The server
// still notices when the client closes the connection.
func patient(w http.ResponseWriter) (hurry func()) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // an error means that the writer has no deadlines
	return func() { _ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) }
}
