package lease_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// Each task id has exactly one text: ParseTaskID accepts only what String writes.
func FuzzTaskID(f *testing.F) {
	f.Add(lease.TaskID{Space: 1, Seq: 1}.String())
	f.Add(lease.TaskID{Space: lease.MaxSpace, Seq: lease.MaxSeq}.String())
	f.Add("t000000000000000\n")
	f.Add("T0000000000000000")
	f.Fuzz(func(t *testing.T, text string) {
		if id, ok := lease.ParseTaskID(text); ok && id.String() != text {
			t.Errorf("ParseTaskID accepts %q as the id whose text is %q, want it refused", text, id)
		}
	})
}

// A7: Open accepts a lease id only if Issue gives the same text for the tenant and for the ticket
// that Open returned. The lease id of one tenant is not genuine for another.
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
			t.Errorf("Open accepts %q for tenant %q; Issue gives %q for the same ticket", text, tenant, again)
		}
		if tenant != "acme" && text == issued {
			t.Errorf("the lease id of tenant acme is genuine for tenant %q", tenant)
		}
	})
}

// FuzzHistory runs the simulation with random choices that the fuzzer makes: it checks each step
// against the model, the watcher and the book, and that all tasks end once the faults are over; see
// docs/testing/models.md.
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

// chosen is a random source that takes two bytes of choices for each draw, and draws from then once
// they are used up. As each draw takes the same number of bytes, the fuzzer can change one choice
// and keep the others.
type chosen struct {
	choices []byte
	then    rand.Source
}

// Uint64 repeats the two bytes of the choice: math/rand makes a bounded number of the high bits or,
// if the bound is a power of two, of the low ones.
func (c *chosen) Uint64() uint64 {
	if len(c.choices) < 2 {
		return c.then.Uint64()
	}
	n := uint64(binary.BigEndian.Uint16(c.choices))
	c.choices = c.choices[2:]
	return n<<48 | n<<32 | n<<16 | n
}
