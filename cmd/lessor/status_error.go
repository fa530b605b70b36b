package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/internal/detail"
)

// explainStatus returns the text for an error of the coordinator, or nil if err is not one.
func explainStatus(err error) *failure {
	var answer interface{ GRPCStatus() *status.Status } // status.FromError would add the text of errors that wrap it
	if !errors.As(err, &answer) {
		return nil
	}
	s := answer.GRPCStatus()
	if size, limit, ok := tooLarge(s); ok {
		return fail(exitUsage, "", "the message has %s bytes; the limit is %s", size, limit)
	}
	// gRPC derives the code from that of HTTP
	if found := httpAnswer.FindStringSubmatch(s.Message()); found != nil && detail.ReasonOf(s) == "" {
		return explainHTTP(found[1], found[2])
	}
	if strings.HasPrefix(s.Message(), streamReset) && detail.ReasonOf(s) == "" {
		return fail(exitUnavailable, hintReset, "the connection to the coordinator was cut: %s", s.Message())
	}
	switch s.Code() {
	case codes.InvalidArgument:
		return fail(exitUsage, "", "%s", violations(s))
	case codes.NotFound:
		return fail(exitNotFound, missingHint(s), "%s", s.Message())
	case codes.AlreadyExists:
		return fail(exitFailed, existsHint(s), "%s", s.Message())
	case codes.Unauthenticated:
		return fail(exitFailed, hintCredential, "%s", s.Message())
	case codes.PermissionDenied:
		return fail(exitFailed, deniedHint(s), "%s", s.Message())
	case codes.Unavailable:
		if detail.ReasonOf(s) != "" { // the coordinator has answered
			return fail(exitUnavailable, unavailableHint(s), "the coordinator is unavailable: %s", s.Message())
		}
		problem, hint := dialProblem(s.Message())
		return fail(exitUnavailable, waitHint(s, hint), "cannot reach the coordinator: %s", problem)
	case codes.ResourceExhausted:
		if detail.ReasonOf(s) == "AUTH_LIMIT" { // a repeat does not help
			return fail(exitFailed, `"lessor token list" shows the tokens, "lessor key list" the keys`,
				"%s", s.Message())
		}
		return fail(exitUnavailable, exhaustedHint(s), "%s", exhausted(s))
	case codes.Aborted:
		return fail(exitUnavailable, "try again", "%s", s.Message())
	case codes.DeadlineExceeded:
		return fail(exitUnavailable, hintMayBeDone, "no answer in time")
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return fail(exitFailed, "see the coordinator's log", "the coordinator failed: %s", s.Message())
	case codes.Canceled:
		return fail(exitFailed, "", "the call was cancelled")
	case codes.Unimplemented:
		return fail(exitFailed, `compare "lessor version" with "lessor status"`,
			"the coordinator does not know this call: %s", s.Message())
	}
	return fail(exitFailed, "", "%s", s.Message())
}

// explainHTTP returns the text for an answer that is plain HTTP, and that the coordinator does not
// give.
func explainHTTP(answer, code string) *failure {
	switch code {
	case "413":
		return fail(exitUsage, "raise the limit of the proxy, see docs/deployment.md, or send less",
			"the message is too large for a proxy in between: it answers with HTTP status %s", answer)
	case "502", "503":
		return fail(exitUnavailable, "does the coordinator run, and does the proxy have its address? the log of the proxy may say more",
			"a proxy in between cannot reach the coordinator: it answers with HTTP status %s", answer)
	case "504":
		return fail(exitUnavailable, hintMayBeDone,
			"a proxy in between got no answer from the coordinator in time: it answers with HTTP status %s", answer)
	}
	return fail(exitUnavailable, hintNoGRPC,
		"cannot reach the coordinator: the server at that address, or a proxy, does not speak gRPC: it answers with HTTP status %s", answer)
}

// hintMayBeDone is the hint when the answer is missing.
const hintMayBeDone = "the coordinator may have done it anyway; check before you repeat the command"

// anyTryMayBeDone reports whether a call that was perhaps tried several times may have been done,
// from the error of the last try. UNAVAILABLE never rules it out: it may say that there is no
// connection, after a try whose answer was lost. For submit --lines, which repeats its calls.
func anyTryMayBeDone(err error) bool {
	s, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch s.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown:
		return true
	}
	return false
}

// onlyTryMayBeDone reports whether a call that was tried once may have been done although it
// failed. UNAVAILABLE rules it out only if there was no connection, or the coordinator has refused
// the call. For commands that change many tasks, and for packages: they make each call once, and
// what they say of it should not be vaguer than need be.
func onlyTryMayBeDone(err error) bool {
	s, _ := status.FromError(err)
	if s.Code() != codes.Unavailable {
		return anyTryMayBeDone(err)
	}
	if reason := detail.ReasonOf(s); reason != "" {
		return reason == "STORE_FAILED" // the coordinator itself does not know
	}
	// a proxy may say anything
	return !slices.ContainsFunc(neverSent, func(text string) bool { return strings.Contains(s.Message(), text) })
}

// neverSent are what gRPC says if it has no connection that it could have sent the call over: why
// it made none, or that it uses none any more.
var neverSent = []string{
	`desc = "transport: `, `desc = "error reading server preface: `, "name resolver error",
	"produced zero addresses", "the connection is draining",
}

// The hints for a credential that is missing or not valid, and for one that may not do this.
const (
	hintCredential = `set a valid one with --token-file, $LESSOR_TOKEN or --tls-cert; an operator issues one with "lessor token create", and the first one of a tenant is made with its --data while the coordinator is stopped`
	hintRole       = "use a credential that allows it"
)

// deniedHint says what a caller needs that may not do this.
func deniedHint(s *status.Status) string {
	switch detail.Of[*errdetails.ErrorInfo](s).GetMetadata()["host_tenant"] {
	case "none":
		return "whoever runs the coordinator names the tenant: lessor serve --host-tenant NAME; then use a credential of it"
	case "another":
		return "use a credential of the host tenant (serve --host-tenant); ask whoever runs the coordinator"
	}
	return hintRole
}

// hintNoGRPC is the hint for a server that speaks something else.
const hintNoGRPC = "--addr is the address of serve --listen, not of --http; a proxy in between must pass on gRPC"

// streamReset begins the error of gRPC about a call that a proxy has cut off. Its code is INTERNAL,
// CANCELLED or UNKNOWN; a coordinator that fails says why. It resets only calls whose time is over:
// see withTimeout.
const streamReset = "stream terminated by RST_STREAM"

const hintReset = "try again; if there is a proxy in between, docs/deployment.md says what it must do"

// missingHint says where to find the names of what exists.
func missingHint(s *status.Status) string {
	switch detail.ReasonOf(s) {
	case "TASK_NOT_FOUND":
		return `"lessor task list" shows the tasks of a workspace; ended tasks are deleted after their retention`
	case "QUEUE_NOT_FOUND":
		return `"lessor queue list" shows the queues of a workspace; a queue exists from its first task or update on, until its last task is removed; "lessor queue update NAME --pause" creates one that is paused`
	case "WORKER_NOT_FOUND":
		return `"lessor worker list" shows who is connected`
	case "AUTH_NOT_FOUND":
		return `"lessor token list" shows the tokens`
	}
	return ""
}

// exhausted says which limit is used up. Without a reason of the coordinator, the status is from
// gRPC or a proxy.
func exhausted(s *status.Status) string {
	switch detail.ReasonOf(s) {
	case "", "COORDINATOR_OVERLOADED":
		return "the coordinator is overloaded: " + s.Message()
	}
	return s.Message()
}

func exhaustedHint(s *status.Status) string {
	hint := waitHint(s, "try again later")
	switch reason := detail.ReasonOf(s); {
	case strings.HasPrefix(reason, "QUOTA_"):
		hint += `; "lessor status" shows the quotas`
	case reason == "STORE_DISK_FULL": // as a whole it need not be: a small one has no room for --disk-reserve
		hint += `; "lessor status", to the host tenant, and the log of the coordinator say how much room it needs`
	}
	return hint
}

func unavailableHint(s *status.Status) string {
	if detail.ReasonOf(s) == "STORE_GONE" { // a repeat helps only after somebody has done something
		return "its file must be moved back, or its contents be saved: docs/operations.md, A disk that is full, slow or gone"
	}
	return waitHint(s, "try again later")
}

// violations lists the bad fields, one on each line.
func violations(s *status.Status) string {
	var lines []string
	for _, v := range detail.Of[*errdetails.BadRequest](s).GetFieldViolations() {
		lines = append(lines, v.GetField()+": "+v.GetDescription())
	}
	if len(lines) == 0 {
		return s.Message()
	}
	return strings.Join(lines, "\n")
}

// waitHint returns a hint with the wait that the coordinator asked for. If it asked for none,
// waitHint returns otherwise.
func waitHint(s *status.Status, otherwise string) string {
	if wait, asked := retryDelay(s); asked {
		return "try again in " + wait.Round(time.Millisecond).String()
	}
	return otherwise
}

// retryDelay returns the wait that the coordinator asked for, if it asked for one.
func retryDelay(s *status.Status) (wait time.Duration, asked bool) {
	info := detail.Of[*errdetails.RetryInfo](s)
	return info.GetRetryDelay().AsDuration(), info != nil
}

// existsHint names the task that exists already, or says what to do about a name that is taken.
func existsHint(s *status.Status) string {
	if detail.ReasonOf(s) == "STANDBY_NAME_TAKEN" {
		return "give each standby a --name of its own"
	}
	id := detail.Of[*errdetails.ErrorInfo](s).GetMetadata()["task_id"]
	if id == "" {
		return ""
	}
	return fmt.Sprintf("look at it with \"lessor task get %s\", or use another key", id)
}

// sizes matches gRPC's error about a message that is too large. The status code alone does not
// distinguish this from overload.
var sizes = regexp.MustCompile(`larger than max \((\d+) vs\. (\d+)\)`)

// httpAnswer matches gRPC's error about an answer that is plain HTTP.
var httpAnswer = regexp.MustCompile(`unexpected HTTP status code received from server: ((\d+) \(.*?\))`)

// tooLarge returns the size and the limit of a message, in bytes.
func tooLarge(s *status.Status) (size, limit string, ok bool) {
	found := sizes.FindStringSubmatch(s.Message())
	if s.Code() != codes.ResourceExhausted || found == nil {
		return "", "", false
	}
	return found[1], found[2], true
}

// endOfQuoted returns what the end of a quoted text stands for.
func endOfQuoted(s string) string { return strings.ReplaceAll(strings.TrimSuffix(s, `"`), `\"`, `"`) }

const (
	hintFull = "too many connections may be open, in total or from this address (serve --max-connections, --max-connections-of-address)"
	hintTLS  = "without --tls and --tls-ca, it may require TLS: set --tls-ca to its authority"
	hintCert = "with --tls-cert, it may have refused that certificate: the authority must be in the coordinator's --tls-client-ca"
	// The hints for a connection that was cut: once it had worked, in the handshake of TLS, and
	// before anything is known: not even whether TLS was in use, which gRPC does not tell.
	hintLost  = "it was stopped, or something in between cuts connections; the log of the coordinator tells"
	hintShook = "it was stopped, or something in between cuts connections. Or " + hintFull + ". Or, " + hintCert + ". The log of the coordinator tells"
	hintCut   = "it was stopped, or something in between cuts connections. Or " + hintFull + ". Or, " + hintTLS + ". Or, " + hintCert +
		". The log of the coordinator tells"
)

// readFailed is what gRPC says of a connection that had worked: the coordinator had spoken.
const readFailed = "error reading from server: "

// dialProblem returns the part of gRPC's nested message about a failed connection that helps the
// user, and a hint what to do.
func dialProblem(message string) (problem, hint string) {
	const noGRPC = "the server at that address does not speak gRPC"
	const running = `is the coordinator running? start one with "lessor serve", or name another with --addr`
	if _, after, found := strings.Cut(message, "Error while dialing: "); found {
		return endOfQuoted(after), running
	}
	_, handshake, _ := strings.Cut(message, "authentication handshake failed: ")
	handshake = endOfQuoted(handshake)
	cut := strings.Contains(message, "broken pipe") ||
		strings.Contains(message, "connection reset by peer") || handshake == "EOF"
	switch {
	case strings.Contains(message, readFailed):
		return message, hintLost
	case strings.HasSuffix(handshake, "deadline exceeded"),
		strings.Contains(message, "server preface") && strings.Contains(message, "use of closed network connection"):
		return "the server at that address accepts connections but does not answer",
			"the coordinator or its machine may be stopped or overloaded; its log may say more"
	case strings.Contains(handshake, "no application protocol"),
		strings.Contains(message, "looked like an HTTP/1.1 header"):
		return noGRPC, hintNoGRPC
	case strings.Contains(message, "name resolver error"):
		return "the host name of --addr has no address", running
	case strings.Contains(handshake, "does not look like a TLS handshake"):
		return "it does not use TLS", "leave out --tls, --tls-ca and --tls-cert, or start the coordinator with --tls-cert"
	case strings.Contains(handshake, "certificate has expired or is not yet valid"):
		return handshake, "replace the certificate of the coordinator (serve --tls-cert), unless the clock of this machine is wrong"
	case strings.Contains(handshake, "x509: "):
		return handshake, "set --tls-ca to the authority of its certificate; the certificate must be valid for the host of --addr"
	case cut && handshake != "":
		return handshake, hintShook
	case cut:
		// As often after a call without TLS. And with TLS 1.3, a refusal of the certificate comes
		// after the handshake of the client, and may be lost when the connection ends.
		_, preface, _ := strings.Cut(message, "server preface: ")
		return cmp.Or(endOfQuoted(preface), message), hintCut
	case handshake != "":
		return handshake, running
	case strings.Contains(message, "remote error: tls: expired certificate"):
		return "it refuses the certificate of --tls-cert: it has expired or is not yet valid",
			"replace it, unless the clock of the coordinator is wrong"
	case strings.Contains(message, "remote error: tls: "):
		_, alert, _ := strings.Cut(message, "remote error: ")
		return "it refuses the connection: " + endOfQuoted(alert),
			"the authority of --tls-cert must be in the coordinator's --tls-client-ca"
	case strings.Contains(message, "server preface"):
		return noGRPC + ", or has closed the connection",
			hintTLS + ". Or, " + hintCert + ". Or " + hintFull + ". The log of the coordinator tells"
	}
	return message, running
}
