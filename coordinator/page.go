package coordinator

import (
	"crypto/sha256"
	"encoding/base64"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
)

// Sizes of pages.
const (
	defaultPage = 100
	// maxPageBytes ends a page early, so that it fits into a message whatever its items contain.
	maxPageBytes = 1 << 20
)

// listing identifies the list that a page token belongs to. A token of another tenant, list or filter is refused, because its cursor would
// mean nothing. The checksum guards against mix-ups; a forged cursor shows its caller nothing that the first page would not.
type listing [sha256.Size]byte

// newListing returns the listing of a list. request holds everything that selects its items, and nothing about the page.
func newListing(kind, tenant string, request proto.Message) listing {
	return convert.Fingerprint(request, kind, tenant)
}

const checkLen = 8

// token returns the page token of the page after cursor.
func (l listing) token(cursor []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(l.check(cursor), cursor...))
}

// cursor reads a page token; no token is the first page. The error names page_token.
func (l listing) cursor(f *convert.Fields, token string) []byte {
	if token == "" {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < checkLen || l.token(raw[checkLen:]) != token { // the decoder skips line ends, and some bits
		f.Fail("page_token", "does not belong to this list; send the next_page_token of a page with the same filter, or leave it empty")
		return nil
	}
	return raw[checkLen:]
}

func (l listing) check(cursor []byte) []byte {
	sum := sha256.Sum256(append(l[:], cursor...))
	return sum[:checkLen]
}
