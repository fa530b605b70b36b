package matrix

import "github.com/lessor-dev/lessor/coordinator/auth"

// holder is the name of the credential that is the task token of the leased task.
const holder = "task token"

// taskTokens returns the credentials for the routes of callbacks. Each bad one is refused in the
// same words.
func (e *environment) taskTokens() []credential {
	good, evilToken := e.tokens[acme+" task"], e.tokens[evil+" task"]
	return []credential{
		{name: holder, headers: bearer(good), tenant: acme, role: auth.Worker},
		{name: stranger, headers: bearer(evilToken), tenant: evil, role: auth.Worker},
		{name: "none", problem: auth.Missing},
		{name: "malformed", headers: bearer("lst_secret"), problem: auth.Malformed},
		{name: "of another scheme", headers: []string{"Basic " + good}, problem: auth.Malformed},
		{name: "sent twice", headers: append(bearer(good), bearer(good)...), problem: auth.Malformed},
		{name: "with another signature", headers: bearer(good[:len(good)-8] + evilToken[len(evilToken)-8:]), problem: auth.BadSignature},
		{name: "expired", headers: bearer(e.tokens["expired task"]), problem: auth.Expired},
		{name: "whose credential was revoked", headers: bearer(e.tokens["revoked task"]), problem: auth.Revoked},
		{name: "no task token, but an operator's", headers: bearer(e.tokens[acme+" operator"]), problem: auth.Malformed},
		{name: "no task token, but a lease", headers: bearer(e.parties[acme]["lease"]), problem: auth.Malformed},
	}
}
