package lease

import (
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func randomTaskID() TaskID {
	return TaskID{Space: rand.Uint32N(MaxSpace + 1), Seq: rand.Uint64N(MaxSeq + 1)}
}

// ParseTaskID reads the id from the text that String writes.
func TestTaskIDRoundTrip(t *testing.T) {
	ids := []TaskID{{}, {Space: MaxSpace, Seq: MaxSeq}, {Space: 1}, {Seq: 1}, {Space: MaxSpace}, {Seq: MaxSeq}}
	for range 1000 {
		ids = append(ids, randomTaskID())
	}
	for _, id := range ids {
		if got, ok := ParseTaskID(id.String()); !ok || got != id {
			t.Errorf("ParseTaskID(%q) = %v, %v; want %v", id, got, ok, id)
		}
	}
}

// TaskID.String promises texts that sort as TaskID.Compare does: by space, then by sequence.
func TestTaskIDSortsAsText(t *testing.T) {
	for range 1000 {
		a, b := randomTaskID(), randomTaskID()
		if rand.IntN(2) == 0 {
			b.Space = a.Space
		}
		if a.Compare(b) != strings.Compare(a.String(), b.String()) {
			t.Errorf("space %d, seq %d compared to space %d, seq %d is %d; for their texts %s and %s this is %d, want the same",
				a.Space, a.Seq, b.Space, b.Seq, a.Compare(b), a, b, strings.Compare(a.String(), b.String()))
		}
	}
}

// ParseTaskID accepts only what String writes. If it accepted another text for the same id, one
// task would have several names.
func TestParseTaskIDIsStrict(t *testing.T) {
	good := TaskID{Space: 3, Seq: 77}.String()
	for name, text := range map[string]string{
		"empty":              "",
		"no prefix":          good[1:],
		"another prefix":     "x" + good[1:],
		"one short":          good[:len(good)-1],
		"one long":           good + "0",
		"upper case":         strings.ToUpper(good),
		"outside alphabet":   good[:16] + "u",
		"padding":            good[:16] + "=",
		"line end at end":    good[:16] + "\n",
		"line end inside":    good[:8] + "\r" + good[9:],
		"only line ends":     "t" + strings.Repeat("\n", 16),
		"not ASCII":          good[:15] + "é",
		"spaces around":      " " + good[:16],
		"a zero byte inside": good[:8] + "\x00" + good[9:],
	} {
		if id, ok := ParseTaskID(text); ok {
			t.Errorf("%s: ParseTaskID(%q) = %v, want no id", name, text, id)
		}
	}
}

// A2: a fencing token is above every token of an earlier epoch and of an earlier attempt of the
// same epoch. It is below 2^53, so that a double holds it exactly.
func TestFencingTokenRises(t *testing.T) {
	t.Attr("rules", "A2")
	last := uint64(0)
	for _, epoch := range []uint32{1, 2, 90_000_000, 1<<32 - 1} {
		for _, attempt := range []uint32{1, 2, 1000, MaxAttempt} {
			token := FencingToken(epoch, attempt)
			if token <= last {
				t.Errorf("the token of epoch %d, attempt %d is %d, want it above the one before, %d", epoch, attempt, token, last)
			}
			if token >= 1<<53 || uint64(float64(token)) != token {
				t.Errorf("token %d is not below 2^53, or a double does not hold it exactly", token)
			}
			last = token
		}
	}
}

func testTicket() Ticket {
	return Ticket{Epoch: 7, Task: TaskID{Space: 2, Seq: 99}, Attempt: 3, Nonce: 0x1122334455667788}
}

// A11: the epoch after a restore is the greater of the stored epoch + 1 and the seconds since 2024,
// so that it is above every epoch that followed the backup. A2: it stays within 32 bits, and the
// greatest fencing token is below 2^53, as is the first sequence after a restore.
func TestRestoredEpoch(t *testing.T) {
	t.Attr("rules", "A2 A11")
	for _, c := range []struct {
		stored uint32
		now    time.Time
		want   uint32
	}{
		{1, time.Date(2024, 1, 1, 0, 0, 9, 0, time.UTC), 9},
		{9, time.Date(2024, 1, 1, 0, 0, 9, 0, time.UTC), 10},
		{1, time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), 91_152_000},
		{7, time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), 8},         // a clock that was never set
		{7, time.Date(2261, 1, 1, 0, 0, 0, 0, time.UTC), 1<<32 - 1}, // a clock far ahead
	} {
		if got := RestoredEpoch(c.stored, WallOf(c.now)); got != c.want {
			t.Errorf("the epoch after a restore of epoch %d at %v is %d, want %d", c.stored, c.now, got, c.want)
		}
	}
	for _, c := range []struct {
		epoch uint32
		next  uint64
		want  uint64
	}{
		{1, 1, 1},
		{8, 5, 8 << 20},
		{8, 9 << 20, 10 << 20}, // more than a million in a second
		{91_152_000, 5, 91_152_000 << 20},
	} {
		if got := FirstSeq(c.epoch, c.next); got != c.want {
			t.Errorf("the first sequence in epoch %d after %d is %d, want %d", c.epoch, c.next, got, c.want)
		}
	}
	if seq := FirstSeq(MaxEpoch, 1); seq >= 1<<53 {
		t.Errorf("the greatest first sequence is %d, want it below 2^53", seq)
	}
	if token := FencingToken(MaxEpoch, MaxAttempt); token >= 1<<53 {
		t.Errorf("the greatest token is %d, want it below 2^53", token)
	}
}

// A7: an authority recognises the lease ids that it issued, if the same tenant presents them. After
// a restore, which changes the epoch and keeps the key, it still recognises those of before.
func TestAuthorityRecognisesItsLeaseIDs(t *testing.T) {
	t.Attr("rules", "A7")
	a := NewAuthority(7, []byte("key"))
	id := a.Issue("acme", testTicket())
	if got, ok := a.Open("acme", id); !ok || got != testTicket() {
		t.Errorf("Open = %+v, %v; want %+v", got, ok, testTicket())
	}
	if again := a.Issue("acme", testTicket()); again != id {
		t.Errorf("the same ticket gave the lease id %q, then %q, want the same", id, again)
	}
	later := NewAuthority(8, []byte("key"))
	if got, ok := later.Open("acme", id); !ok || got.Epoch != 7 {
		t.Errorf("in the next epoch Open = %+v, %v; want epoch 7", got, ok)
	}
}

// V15: the attempts of an epoch are all known from the last restore on. Of an earlier epoch the
// restore may have lost some; a later one is of another copy, as of a standby that was promoted
// while its coordinator is still serving. An authority that is told nothing knows its own epoch
// only.
func TestKnownEpochs(t *testing.T) {
	t.Attr("rules", "V15")
	for _, knownFrom := range []uint32{0, 5, 7} {
		a := NewAuthority(7, []byte("key"))
		if knownFrom != 0 {
			a.KnownFrom = knownFrom
		}
		for epoch := range uint32(10) {
			if got, want := a.knows(epoch), epoch == 7 || knownFrom == 5 && (epoch == 5 || epoch == 6); got != want {
				t.Errorf("in epoch 7, with all grants known from epoch %d on, those of epoch %d are known: %v, want %v",
					a.KnownFrom, epoch, got, want)
			}
		}
	}
}

// A7: Open refuses a lease id of another tenant or another key, and every text that is not exactly
// as Issue writes it.
func TestAuthorityRefusesForgeries(t *testing.T) {
	t.Attr("rules", "A7")
	a := NewAuthority(7, []byte("key"))
	id := a.Issue("acme", testTicket())
	refused := func(name, tenant, leaseID string) {
		t.Helper()
		if ticket, ok := a.Open(tenant, leaseID); ok || ticket != (Ticket{}) {
			t.Errorf("%s: Open = %+v, %v; want nothing", name, ticket, ok)
		}
	}
	refused("another tenant", "acm", id)
	refused("no tenant", "", id)
	refused("another key", "acme", NewAuthority(7, []byte("kez")).Issue("acme", testTicket()))
	refused("empty", "acme", "")
	refused("one short", "acme", id[:len(id)-1])
	refused("one long", "acme", id+"A")
	refused("padding", "acme", id[:len(id)-1]+"=")
	refused("text", "acme", strings.Repeat("lease ", 10)[:len(id)])
	// of the right length, but the base64 decoder skips line ends and returns fewer bytes
	for n := 1; n <= len(id); n++ {
		refused("line ends", "acme", id[:len(id)-n]+strings.Repeat("\n", n))
	}
}

// A7: the MAC covers every bit of a lease id: with any one bit flipped, Open refuses it.
func TestAuthorityRefusesFlippedBits(t *testing.T) {
	t.Attr("rules", "A7")
	a := NewAuthority(7, []byte("key"))
	raw, err := base64.RawURLEncoding.DecodeString(a.Issue("acme", testTicket()))
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(raw) * 8 {
		raw[bit/8] ^= 1 << (bit % 8)
		if _, ok := a.Open("acme", base64.RawURLEncoding.EncodeToString(raw)); ok {
			t.Errorf("the lease id with bit %d flipped is still genuine", bit)
		}
		raw[bit/8] ^= 1 << (bit % 8)
	}
}

// W8: a derived key is the same after a restart, in the next version, and in every epoch: it is the
// HMAC-SHA256 of its purpose. If it changed, no session could resume after an upgrade. If this test
// fails, correct the code, not the value.
func TestDerivedKeysNeverChange(t *testing.T) {
	t.Attr("rules", "W8")
	const want = "1cb8ccd4dfa8da337749318089260ac8f230ea608d0a889715fcc089f60c3cdf"
	for epoch := range uint32(2) {
		a := NewAuthority(epoch, []byte("key"))
		for range 2 {
			if got := hex.EncodeToString(a.Derive("session token")); got != want {
				t.Errorf("epoch %d: the key for session tokens is %s, want %s", epoch, got, want)
			}
			if got := hex.EncodeToString(a.Derive("other")); got == want {
				t.Errorf("epoch %d: the key for another purpose is the same, want another", epoch)
			}
			a.Issue("acme", Ticket{}) // uses the MAC of the pool
		}
	}
}
