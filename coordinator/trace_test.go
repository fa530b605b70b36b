package coordinator

import "testing"

// A traceparent is valid if it has version 00, lower-case hexadecimal digits, and neither id is zero.
func TestTraceparentForm(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for s, want := range map[string]bool{
		good:            true,
		"":              false,
		good + "-":      false,
		"01" + good[2:]: false,
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01":  false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g": false,
	} {
		if got := validTraceparent(s); got != want {
			t.Errorf("%q: valid is %v, want %v", s, got, want)
		}
	}
}
