package service

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/internal/wire"
)

// defaultPage is how many items a page has if the caller does not say.
const defaultPage = 100

// maxPageBytes ends a page early, so that the page fits into a message even if its items are large.
var maxPageBytes = 1 << 20

// pageSize is how far a page has been filled.
type pageSize struct {
	items, bytes int
	most         int // items of the page at most
}

// full reports whether the page takes no more items. Its last item may exceed maxPageBytes.
func (p *pageSize) full() bool { return p.items >= p.most || p.bytes >= maxPageBytes }

func (p *pageSize) add(item proto.Message) {
	p.items++
	p.bytes += wire.Size(item)
}

// listing identifies the list that a page token belongs to. A token of another tenant, list, filter
// or order is refused, because its cursor has no meaning in this list. The checksum only detects
// mistakes. It need not prevent forgery: with a forged cursor a caller sees only items of the same
// list.
type listing [sha256.Size]byte

// newListing returns the listing of a list. request holds all fields that select items, but no page
// size and no page token.
func newListing(kind, tenant string, request proto.Message) listing {
	return convert.Fingerprint(request, kind, tenant)
}

const checkLen = 8

// token returns the token of the page that begins after cursor.
func (l listing) token(cursor []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(l.check(cursor), cursor...))
}

// cursor returns the cursor in a page token. An empty token gives a nil cursor, for the first page.
// The error names page_token.
func (l listing) cursor(f *convert.Fields, token string) []byte {
	if token == "" {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	// the decoder ignores line ends and some bits, so the encoded forms are compared
	if err != nil || len(raw) < checkLen || l.token(raw[checkLen:]) != token {
		f.Fail("page_token", "does not belong to this list; send the next_page_token of a page with the same filter and order, or leave it empty")
		return nil
	}
	return raw[checkLen:]
}

// pairToken returns a page token whose cursor is two numbers.
func (l listing) pairToken(a, b uint64) string {
	return l.token(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, a), b))
}

// pair returns the two numbers in a page token. Without a token, or with one that fails, it returns
// false.
func (l listing) pair(f *convert.Fields, token string) (a, b uint64, ok bool) {
	cursor := l.cursor(f, token)
	if len(cursor) != 8+8 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(cursor), binary.BigEndian.Uint64(cursor[8:]), true
}

func (l listing) check(cursor []byte) []byte {
	sum := sha256.Sum256(append(l[:], cursor...))
	return sum[:checkLen]
}
