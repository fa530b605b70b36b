package gate

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/auth"
)

// The header of a credential has one reading: what is taken is the whole of what follows the word.
func FuzzBearer(f *testing.F) {
	f.Add("Bearer lsr_a.b.c")
	f.Add("bearer  x")
	f.Add("Bearer")
	f.Add("Basic " + base64.StdEncoding.EncodeToString([]byte("a:b")))
	f.Fuzz(func(t *testing.T, header string) {
		token, err := bearer([]string{header})
		if bad := (*auth.Error)(nil); err != nil && !errors.As(err, &bad) {
			t.Errorf("%q: %v", header, err)
		}
		if err == nil && (token == "" || len(header) != len("bearer ")+len(token)) {
			t.Errorf("%q is taken for %q", header, token)
		}
		if _, err := bearer([]string{header, header}); err == nil {
			t.Errorf("%q is taken twice", header)
		}
	})
}
