package lease_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// An id of a task has one text.
func FuzzTaskID(f *testing.F) {
	f.Add(lease.TaskID{Space: 1, Seq: 1}.String())
	f.Add(lease.TaskID{Space: lease.MaxSpace, Seq: lease.MaxSeq}.String())
	f.Add("t000000000000000\n")
	f.Add("T0000000000000000")
	f.Fuzz(func(t *testing.T, text string) {
		if id, ok := lease.ParseTaskID(text); ok && id.String() != text {
			t.Errorf("%q is read as %q", text, id)
		}
	})
}

// A lease id that opens is word for word one that was issued for that tenant, and says what was put into it (A7).
func FuzzLeaseID(f *testing.F) {
	a := lease.NewAuthority(7, []byte("key"))
	issued := a.Issue("acme", lease.Ticket{Epoch: 7, Task: lease.TaskID{Space: 1, Seq: 2}, Attempt: 3, Nonce: 4})
	f.Add("acme", issued)
	f.Add("other", issued)
	f.Add("acme", issued[:len(issued)-1]+"\n")
	f.Add("acme", issued+"A")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, tenant, text string) {
		ticket, genuine := a.Open(tenant, text)
		if !genuine {
			return
		}
		if again := a.Issue(tenant, ticket); again != text {
			t.Errorf("%q of %q was taken; issued is %q", text, tenant, again)
		}
		if tenant != "acme" && text == issued {
			t.Errorf("the lease id of acme is good for %q", tenant)
		}
	})
}

// A history in which the fuzzer decides what happens: the simulation, with its model, its watcher and its book, at every step; see docs/testing.md.
func FuzzHistory(f *testing.F) {
	for seed := range uint64(4) {
		choices := make([]byte, 0, 2000)
		for rng := rand.NewPCG(seed, 0); len(choices) < cap(choices); {
			choices = binary.BigEndian.AppendUint64(choices, rng.Uint64())
		}
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		const most = 400 // steps
		w := newWorldOf(&chosen{choices: choices, then: rand.NewPCG(1, 0)}, newCoverage())
		var err error
		for err == nil && w.steps < most {
			err = w.turn()
		}
		if err == nil {
			err = w.drain()
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// chosen is a source of chance that comes from outside, two bytes for each draw, so that a small change changes little; then from another one.
type chosen struct {
	choices []byte
	then    rand.Source
}

// Uint64 has its choice at the top, of which bounded numbers are made.
func (c *chosen) Uint64() uint64 {
	if len(c.choices) < 2 {
		return c.then.Uint64()
	}
	n := uint64(binary.BigEndian.Uint16(c.choices))
	c.choices = c.choices[2:]
	return n<<48 | n<<32 | n<<16 | n
}
