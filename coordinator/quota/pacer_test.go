package quota

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// X5: the turns of a key come at the rate. A turn that is too far in the future is refused. Other
// keys are not affected.
func TestPacer(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(Rate{PerSecond: 10, Burst: 2}, 300*time.Millisecond)
		for i, want := range []time.Duration{0, 0, 100, 200, 300} {
			if wait, ok := p.Turn("a"); !ok || wait != want*time.Millisecond {
				t.Errorf("turn %d has a wait of %v (%v), want %d ms", i, wait, ok, want)
			}
		}
		for range 3 {
			if wait, ok := p.Turn("a"); ok || wait != 400*time.Millisecond {
				t.Errorf("a turn has a wait of %v (%v), want a refusal with 400 ms", wait, ok)
			}
		}
		if wait, ok := p.Turn("b"); !ok || wait != 0 {
			t.Errorf("a turn of another key has a wait of %v (%v), want none", wait, ok)
		}
		time.Sleep(time.Second)
		if wait, ok := p.Turn("a"); !ok || wait != 0 {
			t.Errorf("a turn after a second without turns has a wait of %v (%v), want none", wait, ok)
		}
	})
}

// X5: the number of keys in memory is limited. A new key is also paced while the memory is full.
func TestPacerForgets(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(Rate{PerSecond: 1}, 0)
		for i := range mostKeys + 100 {
			p.Turn(fmt.Sprint(i))
		}
		if len(p.debts) > mostKeys+1 {
			t.Errorf("%d keys are in memory, want at most %d", len(p.debts), mostKeys+1)
		}
		if _, ok := p.Turn("new"); ok {
			t.Error("a new key gets a turn at once while the memory is full")
		}
		time.Sleep(time.Minute)
		p.Turn("new")
		if len(p.debts) > fewKeys {
			t.Errorf("%d keys are in memory after a minute, want at most %d", len(p.debts), fewKeys)
		}
	})
}

// X5: a pause ends with the context of its call.
func TestPauseEndsWithItsCall(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		Pause(ctx, time.Hour)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Pause waited for %v, want 1 s", took)
		}
	})
}
