package main

import (
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// explainStatus puts an error of the coordinator into words; nil where err is none.
func explainStatus(err error) *failure {
	s, ok := status.FromError(err)
	if !ok {
		return nil
	}
	switch s.Code() {
	case codes.InvalidArgument:
		return fail(exitUsage, "", "%s", violations(s))
	case codes.NotFound:
		return fail(exitNotFound, "", "%s", s.Message())
	case codes.Unavailable:
		return fail(exitUnavailable, waitHint(s, `is the coordinator running? start one with "lessor serve", or name another with --addr`),
			"cannot reach the coordinator: %s", dialProblem(s.Message()))
	case codes.ResourceExhausted:
		return fail(exitUnavailable, waitHint(s, "try again later"), "the coordinator is overloaded: %s", s.Message())
	case codes.DeadlineExceeded:
		return fail(exitUnavailable, "the coordinator may have done it all the same; look before you repeat", "no answer in time")
	case codes.Unimplemented:
		return fail(exitFailed, `compare "lessor version" with "lessor status"`, "the coordinator does not know this call: %s", s.Message())
	}
	return fail(exitFailed, "", "%s", s.Message())
}

// violations lists the bad fields, one a line.
func violations(s *status.Status) string {
	var lines []string
	for _, detail := range s.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				lines = append(lines, v.GetField()+": "+v.GetDescription())
			}
		}
	}
	if len(lines) == 0 {
		return s.Message()
	}
	return strings.Join(lines, "\n")
}

// waitHint prefers the coordinator's own word on when to come back.
func waitHint(s *status.Status, otherwise string) string {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return "try again in " + info.GetRetryDelay().AsDuration().Round(time.Millisecond).String()
		}
	}
	return otherwise
}

// dialProblem leaves of gRPC's nested message about a failed connection what tells the user something.
func dialProblem(message string) string {
	const marker = "Error while dialing: "
	if _, after, found := strings.Cut(message, marker); found {
		return strings.TrimSuffix(after, `"`)
	}
	return message
}
