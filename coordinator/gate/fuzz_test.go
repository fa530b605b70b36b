package gate

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/auth"
)

// An authorization header is accepted in one form: the scheme, one space, and the token. Two
// headers are refused.
func FuzzBearer(f *testing.F) {
	f.Add("Bearer lsr_a.b.c")
	f.Add("bearer  x")
	f.Add("Bearer")
	f.Add("Basic " + base64.StdEncoding.EncodeToString([]byte("a:b")))
	f.Fuzz(func(t *testing.T, header string) {
		token, err := bearer([]string{header})
		if bad := (*auth.Error)(nil); err != nil && !errors.As(err, &bad) {
			t.Errorf("%q: the error is %v, want an *auth.Error", header, err)
		}
		if err == nil && (token == "" || len(header) != len("bearer ")+len(token)) {
			t.Errorf("the header %q is accepted with the token %q", header, token)
		}
		if _, err := bearer([]string{header, header}); err == nil {
			t.Errorf("two headers %q are accepted, want a refusal", header)
		}
	})
}
