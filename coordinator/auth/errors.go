package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Problem says why a credential is not good, as a word for programs.
type Problem string

// The problems. The caller is told which one it is; none reveals more than the holder of the token
// can know.
const (
	Missing      Problem = "missing"       // none was sent
	Malformed    Problem = "malformed"     // it does not have the form of a token, or of an identity in a certificate
	UnknownKey   Problem = "unknown_key"   // no key of this coordinator has this id, or it has retired
	BadSignature Problem = "bad_signature" // that key did not sign it
	BadAudience  Problem = "wrong_audience"
	Expired      Problem = "expired"
	// Unknown: signed by the right key, but not in the store, because the store was restored, or
	// the token ended long ago.
	Unknown   Problem = "unknown"
	Revoked   Problem = "revoked"
	Misplaced Problem = "misplaced" // it is a task token, which is for callbacks alone
	Conflict  Problem = "conflict"  // the token and the certificate of one caller name different tenants
)

var problemWords = map[Problem]string{
	Missing:      "no credential was sent",
	Malformed:    "the credential is malformed",
	UnknownKey:   "the token is signed by a key that this coordinator does not know or that has retired",
	BadSignature: "the token is not signed by the key that it names",
	BadAudience:  "the token is for another audience",
	Expired:      "the credential has expired",
	Unknown:      "the token is not known to this coordinator",
	Revoked:      "the credential was revoked",
	Misplaced: "this is a task token, not a credential; it is only for the callbacks of its task over HTTP " +
		"(POST /v1/tasks/{task_id}/started, heartbeat and completed)",
	Conflict: "the token and the client certificate belong to different tenants",
}

// Problems returns all problems, in no order.
func Problems() []Problem { return slices.Collect(maps.Keys(problemWords)) }

// Error says that a credential is not good. It never contains any part of the credential.
type Error struct{ Problem Problem }

func (e *Error) Error() string { return problemWords[e.Problem] }

// ErrNotFound means that the tenant has no such token.
var ErrNotFound = errors.New("no such token")

// LimitError means that a tenant has reached its limit of tokens or keys.
type LimitError struct {
	What string
	Most int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the tenant has reached its limit of %d %s", e.Most, e.What)
}

// Ended returns the *Error for which the gate ended the call of ctx, because its credential ended
// while the call was under way; else nil.
func Ended(ctx context.Context) error {
	if bad, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return bad
	}
	return nil
}
