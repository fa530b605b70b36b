package matrix

import "strings"

// The two tenants of the environment, and two that do not exist. Their names are so long that no
// random token happens to contain one.
const (
	acme = "acme-inc"
	evil = "evil-inc"
	void = "void-inc"
	nemo = "nemo-inc"
)

// names are the names of a tenant's objects, by kind. A name that is only for one place has the key
// "kind/place", for example "task/RetryTask".
type names map[kind]string

// namesOf returns the names that a tenant chooses itself; those of a tenant that does not exist
// have the same form and length. Nearly everything is in the workspace "default" of each tenant, so
// that only the tenant keeps them apart.
func namesOf(tenant string) names {
	n := names{"tenant": tenant, "subject": tenant + "-operator"}
	for _, k := range []kind{
		"workspace", "worker", "queue", "type", "run", "node", "asset", "host", "idempotency", "key", "concurrency", "fairness", "affinity", "resource",
		"pool", "label", "request", "report", "frame", "instance", "package",
	} {
		n[k] = tenant + "-" + string(k)
	}
	n["trace"] = "00-" + strings.Repeat(map[string]string{acme: "a", evil: "e", void: "d", nemo: "b"}[tenant],
		32) + "-00f067aa0ba902b7-01"
	return n
}

// early is the number of an event that every workspace with a few tasks has, late that of one that
// only evil's has.
const (
	early = "4"
	late  = "20"
)

// namesOfNobody returns names of objects that do not exist. The ids among them have a form that
// could be issued.
func namesOfNobody(nobody string) names {
	n := namesOf(nobody)
	digit := map[string]string{void: "8", nemo: "9"}[nobody]
	n["task"] = "t0000" + digit + "00000000zzz"
	n["attempt"] = n["task"] + "-1"
	n["lease"] = "AAAAAQAAAQAAAAAAAAEAAAABDu4sshADOnD2i222pz8dEPeHdM7h0g7" + digit
	n["session"] = "s0123456789abcde" + digit + "-aaaaaaaaaaaa"
	n["resume"] = strings.Repeat(digit, 104)
	n["token"] = "k000000000000000" + digit
	n["page"] = strings.Repeat(digit, 24)
	n["sequence"] = map[string]string{void: "1000000", nemo: early}[nobody]
	return n
}

// at returns the names for one place.
func (n names) at(place string) names {
	own := names{}
	for k, v := range n {
		if base, only, found := strings.Cut(string(k), "/"); !found {
			if _, special := n[kind(base+"/"+place)]; !special {
				own[k] = v
			}
		} else if only == place {
			own[kind(base)] = v
		}
	}
	return own
}
