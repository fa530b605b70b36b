package quota

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// X5: each turn of a key is at the rate after the one before; a turn that is too far away is refused. Other keys are not affected.
func TestPacer(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(Rate{PerSecond: 10, Burst: 2}, 300*time.Millisecond)
		for i, want := range []time.Duration{0, 0, 100, 200, 300} {
			if wait, ok := p.Turn("a"); !ok || wait != want*time.Millisecond {
				t.Errorf("turn %d is %v away (%v), want %d ms", i, wait, ok, want)
			}
		}
		for range 3 {
			if wait, ok := p.Turn("a"); ok || wait != 400*time.Millisecond {
				t.Errorf("a turn is %v away (%v), want none before 400 ms", wait, ok)
			}
		}
		if wait, ok := p.Turn("b"); !ok || wait != 0 {
			t.Errorf("another's turn is %v away (%v)", wait, ok)
		}
		time.Sleep(time.Second)
		if wait, ok := p.Turn("a"); !ok || wait != 0 {
			t.Errorf("a turn is %v away (%v) after a rest", wait, ok)
		}
	})
}

// X5: the number of keys in memory is bounded. A key that comes when memory is full is paced, too.
func TestPacerForgets(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(Rate{PerSecond: 1}, 0)
		for i := range mostKeys + 100 {
			p.Turn(fmt.Sprint(i))
		}
		if len(p.paid) > mostKeys+1 {
			t.Errorf("%d keys", len(p.paid))
		}
		if _, ok := p.Turn("new"); ok {
			t.Error("not paced")
		}
		time.Sleep(time.Minute)
		p.Turn("new")
		if len(p.paid) > fewKeys {
			t.Errorf("%d keys after a minute", len(p.paid))
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
			t.Errorf("waited %v", took)
		}
	})
}
