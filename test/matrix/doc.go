// Package matrix tests the authorization matrix: everything that can be asked of a coordinator,
// with every kind of credential.
//
//	places       every RPC, every frame of a session, every HTTP route          calls_test, frames_test, routes_test
//	fields       every field of its request that names something, at any depth  fields_test, kinds_test
//	names        the caller's own, another tenant's, nobody's, none              names_test
//	credentials  good, none, malformed, expired, revoked, of a wrong role ...    credentials_test, task_tokens_test
//
// Places and fields are read from the descriptors of the protos and from the OpenAPI document. A
// place without a row fails the test, and so does a field of which no row says what it names.
//
// A cell is one combination of these four. It is sent to a coordinator (a host, host_test) whose
// store begins as the same snapshot (the environment, environment_test) for each, and three things
// are checked (cells_test):
//
//   - the answer. A bad credential is refused with the same words whatever the request says. With a
//     good one, the answer about another tenant's objects is byte for byte that about objects that
//     do not exist, except for the name itself.
//   - the store (effects_test). A refusal changes nothing, except for an entry in the audit of the
//     credential's owner. Nothing of the other tenant ever changes. What else a cell changes is
//     declared beside its answer, in testdata; `go test ./test/matrix -update` writes these files
//     anew, and the change must be reviewed.
//   - the log (host_test), with all debug messages: no credential, lease id or payload may be in
//     it.
package matrix
