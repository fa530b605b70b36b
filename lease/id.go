package lease

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of the numbers in identifiers. The width of each number in its encoding sets the limit.
const (
	MaxSpace   = 1<<24 - 1 // workspaces of all tenants together
	MaxSeq     = 1<<56 - 1 // tasks and events of one workspace
	MaxAttempt = 1<<21 - 1 // grants of one task; keeps a fencing token below 2^53
	MaxEpoch   = 1<<32 - 1
)

// TaskID identifies a task. Space is the number of its (tenant, workspace); Seq rises within the
// space. So the store always appends the keys of new tasks at the end of their space, and finds the
// record of an id without an index.
type TaskID struct {
	Space uint32
	Seq   uint64
}

// Compare returns a negative number, 0 or a positive one if id is less than, equal to or greater
// than other: by space, and in a space by sequence.
func (id TaskID) Compare(other TaskID) int {
	if id.Space != other.Space {
		return cmp.Compare(id.Space, other.Space)
	}
	return cmp.Compare(id.Seq, other.Seq)
}

var idText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

const idTextLen = 17

// String returns the form on the wire: "t" and 16 characters, which sort in the order of the ids.
func (id TaskID) String() string {
	var text [idTextLen]byte
	return string(id.append(text[:0]))
}

func (id TaskID) append(text []byte) []byte {
	var raw [10]byte
	id.put(raw[:])
	return idText.AppendEncode(append(text, 't'), raw[:])
}

// ParseTaskID parses what String returns; ok is false for anything else.
func ParseTaskID(s string) (id TaskID, ok bool) {
	if len(s) != idTextLen || s[0] != 't' {
		return TaskID{}, false
	}
	var raw [10]byte
	if n, err := idText.Decode(raw[:], []byte(s[1:])); err != nil || n != len(raw) { // the decoder skips line ends
		return TaskID{}, false
	}
	return getID(raw[:]), true
}

// put writes 3 bytes of Space and 7 of Seq.
func (id TaskID) put(b []byte) {
	binary.BigEndian.PutUint64(b[2:], id.Seq) // the top byte is 0 and is overwritten next
	b[0], b[1], b[2] = byte(id.Space>>16), byte(id.Space>>8), byte(id.Space)
}

func getID(b []byte) TaskID {
	return TaskID{
		Space: uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]),
		Seq:   binary.BigEndian.Uint64(b[2:]) & MaxSeq,
	}
}

// AttemptID returns the id of an attempt for people and logs: the task id, a dash and the attempt.
func AttemptID(id TaskID, attempt uint32) string {
	var text [idTextLen + len("-") + 10]byte // a uint32 has at most 10 digits
	return string(strconv.AppendUint(append(id.append(text[:0]), '-'), uint64(attempt), 10))
}

// InstanceOf returns the worker process (the instance) to which a session belongs: the part of the
// session id before the dash, which all sessions of one process share.
func InstanceOf(session string) string {
	instance, _, _ := strings.Cut(session, "-")
	return instance
}

// FencingToken returns a number with the epoch in its high bits and the attempt in the low 21. It
// is greater than the tokens of all earlier grants of the task, even after a restore, and below
// 2^53, so that a double holds it exactly (A2).
func FencingToken(epoch, attempt uint32) uint64 { return uint64(epoch)<<21 | uint64(attempt) }

// restoreEpochStart is the time from which RestoredEpoch counts seconds. It is late enough that the
// seconds fit into an epoch, and that a fencing token stays below 2^53.
const restoreEpochStart = Wall(1_704_067_200_000_000_000) // 2024-01-01

// RestoredEpoch returns the epoch for a store that was restored from a backup of epoch stored: the
// greater of stored + 1 and the seconds since 2024 (A11). It is greater than every epoch that the
// store had after the backup: each such epoch was either one more than the epoch before, after a
// recovery, or the result of a restore at an earlier second: see UntilNextEpoch.
func RestoredEpoch(stored uint32, now Wall) uint32 {
	seconds := max(int64(now-restoreEpochStart)/int64(time.Second), 0)
	return max(stored+1, uint32(min(seconds, MaxEpoch)))
}

// UntilNextEpoch returns the time from now to the end of the second that RestoredEpoch counts. A
// restore waits that long before anybody can serve the store. Otherwise a second restore of the
// same backup could get the same epoch, and its grants the fencing tokens of earlier ones (A2).
func UntilNextEpoch(now Wall) time.Duration {
	return time.Second - time.Duration(now-restoreEpochStart)%time.Second
}

// seqsPerSecond is how many sequences a space may use per second, on average since 2024; FirstSeq
// relies on it. At this value FirstSeq stays below 2^53.
const seqsPerSecond = 1 << 20

// FirstSeq returns the first sequence that a space uses in a new epoch after a restore. next is the
// next sequence of the space in the backup, 1 for a new space. A restore gives up the tasks that
// were submitted after the backup, but their ids may still be in use. FirstSeq is beyond their
// sequences, so that no new task gets one of these ids.
func FirstSeq(epoch uint32, next uint64) uint64 {
	if epoch <= 1 {
		return next
	}
	return max(next+seqsPerSecond, uint64(epoch)*seqsPerSecond)
}

// EpochOfSeq returns an epoch that is at least as high as the one in which FirstSeq gave out a
// sequence as the first; 0 if the sequence is lower than any of those.
func EpochOfSeq(seq uint64) uint32 { return uint32(min(seq/seqsPerSecond, MaxEpoch)) }

// Ticket is the content of a lease id.
type Ticket struct {
	Task    TaskID
	Epoch   uint32
	Attempt uint32
	Nonce   uint64
}

// Authority issues lease ids and recognises the ids that it issued (A7). A lease id is a ticket and
// a MAC over the ticket and the tenant. So nobody can guess a lease id, and an Authority can tell
// an issued id from a forged one even if the store has long forgotten the attempt.
type Authority struct {
	// Epoch of the store; part of every ticket and fencing token.
	Epoch uint32
	// KnownFrom is the first epoch of which the store has all grants that anybody was told of: that
	// of the last restore, or 1 if there was none. NewAuthority sets it to Epoch, which claims
	// least.
	KnownFrom uint32
	macs      sync.Pool // of *mac, because making one costs more than using it
}

// mac is a keyed hash with buffers for its input and output.
type mac struct {
	hash.Hash
	raw, text, tenant []byte
}

// NewAuthority returns an authority with the store's secret key. It is safe for concurrent use.
func NewAuthority(epoch uint32, key []byte) *Authority {
	a := &Authority{Epoch: epoch, KnownFrom: epoch}
	a.macs.New = func() any {
		return &mac{
			Hash: hmac.New(sha256.New, key),
			raw:  make([]byte, 0, ticketLen+sha256.Size),
		}
	}
	return a
}

// knows reports whether the store has all grants of the epoch that anybody was told of. A restore
// may have lost some of an earlier one, and a later one is that of another copy of the store.
func (a *Authority) knows(epoch uint32) bool { return a.KnownFrom <= epoch && epoch <= a.Epoch }

// Derive returns a secret key for another purpose. The key is the MAC of purpose, which must be
// shorter than a ticket (26 bytes): the input of the MAC of a lease id is a ticket or longer, so no
// derived key equals the MAC of a lease id.
func (a *Authority) Derive(purpose string) []byte {
	h := a.macs.Get().(*mac)
	defer a.macs.Put(h)
	h.Reset()
	h.Write([]byte(purpose))
	return h.Sum(nil)
}

const (
	ticketLen = 4 + 10 + 4 + 8
	macLen    = 16
)

// Issue returns the lease id of one attempt.
func (a *Authority) Issue(tenant string, t Ticket) string {
	h := a.macs.Get().(*mac)
	defer a.macs.Put(h)
	ticket := h.raw[:ticketLen]
	binary.BigEndian.PutUint32(ticket, t.Epoch)
	t.Task.put(ticket[4:])
	binary.BigEndian.PutUint32(ticket[14:], t.Attempt)
	binary.BigEndian.PutUint64(ticket[18:], t.Nonce)
	h.raw = h.appendMAC(ticket, tenant)
	h.text = base64.RawURLEncoding.AppendEncode(h.text[:0], h.raw)
	return string(h.text)
}

// Open returns the ticket in leaseID, and whether this authority issued leaseID for the tenant. The
// ticket is zero if it did not.
func (a *Authority) Open(tenant, leaseID string) (t Ticket, genuine bool) {
	if len(leaseID) != base64.RawURLEncoding.EncodedLen(ticketLen+macLen) {
		return Ticket{}, false
	}
	h := a.macs.Get().(*mac)
	defer a.macs.Put(h)
	h.text = append(h.text[:0], leaseID...)
	var err error
	h.raw, err = base64.RawURLEncoding.AppendDecode(h.raw[:0], h.text)
	if err != nil || len(h.raw) != ticketLen+macLen { // the decoder skips line ends
		return Ticket{}, false
	}
	ticket := h.raw[:ticketLen]
	h.text = append(h.text[:0], h.raw[ticketLen:]...)
	if !hmac.Equal(h.text, h.appendMAC(ticket, tenant)[ticketLen:]) { // constant time
		return Ticket{}, false
	}
	return Ticket{
		Epoch:   binary.BigEndian.Uint32(ticket),
		Task:    getID(ticket[4:]),
		Attempt: binary.BigEndian.Uint32(ticket[14:]),
		Nonce:   binary.BigEndian.Uint64(ticket[18:]),
	}, true
}

// appendMAC appends the MAC over a ticket and a tenant to the ticket.
func (h *mac) appendMAC(ticket []byte, tenant string) []byte {
	h.Reset()
	h.Write(ticket) // the ticket has a fixed length, so it is clear where the tenant begins
	h.tenant = append(h.tenant[:0], tenant...)
	h.Write(h.tenant)
	return h.Sum(ticket)[:ticketLen+macLen]
}
