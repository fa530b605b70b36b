// Package matrix is the authorization matrix: everything that can be said to a coordinator, against everything that it can be said with.
//
//	places       every RPC, every frame of a session, every HTTP route          calls_test, frames_test, routes_test
//	fields       every field of its request that names something, at any depth  fields_test, kinds_test
//	names        the caller's own, another tenant's, nobody's, none              names_test
//	credentials  good, none, malformed, expired, revoked, of a wrong role ...    credentials_test, task_tokens_test
//
// The first two are read from the descriptors of the protos and from the OpenAPI document. A place without a row fails the test, and so
// does a field of which nobody has said what it names.
//
// Each cell is said to a coordinator whose store is the same each time (estate_test, house_test), and three things are looked at
// (cells_test):
//
//   - the answer. A bad credential is refused in the same words whatever the request says. With a good one, what is another tenant's is
//     answered byte for byte as what is nobody's, the name itself left out.
//   - the store (effects_test). A refusal changes nothing, but that the owner of the credential finds it in the audit, and nothing of the
//     other tenant ever changes. What else a cell changes is declared beside its answer, in testdata; `go test ./test/matrix -update`
//     writes it anew, to be read as prose.
//   - the log (house_test), at its most talkative: no credential, lease id or payload is in it.
package matrix
