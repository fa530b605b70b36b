package worker

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// longest never returns less than the time that a frame was in transit, however far the clocks of
// both sides are apart, as long as they run evenly. It returns more if the answers so far took
// long. After a clock was set back it is wrong for at most two windows.
func TestTransit(t *testing.T) {
	t.Attr("rules", "A4 A8")
	const second = time.Second
	began := time.Now()
	for _, off := range []time.Duration{0, time.Hour, -time.Hour} {
		at := began.Add
		ts := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(began.Add(d + off)) }
		var tr transit
		check := func(what string, sent, came, want time.Duration) {
			t.Helper()
			if got := tr.longest(at(came), ts(sent)); got != want {
				t.Errorf("%s, clocks apart by %v: longest = %v, want %v", what, off, got, want)
			}
		}
		check("before any answer", 0, 9*second, 0)
		// the answer itself was in transit for 1 s of the 5 s, which the worker cannot know
		tr.observe(at(0), at(5*second), ts(4*second))
		check("a second in transit", 6*second, 7*second, 5*second)
		tr.observe(at(8*second), at(8*second), ts(8*second))
		check("after a quick answer", 10*second, 11*second, second)
		tr.observe(at(12*second), at(40*second), ts(12*second))
		check("after a slow answer", 50*second, 51*second, second)
		check("no time in transit", 50*second, 50*second, 0)

		tr.observe(at(70*second), at(99*second), ts(98*second)) // a slow answer, the first of its window
		check("after an answer in the previous window", 98*second, 99*second, second)

		off -= 10 * second // the coordinator's clock was set back
		check("right after the clock was set back", 100*second, 100*second, 10*second)
		for i := range 3 * (transitWindow / second) {
			tr.observe(at(100*second+i*second), at(100*second+i*second), ts(100*second+i*second))
		}
		check("two windows after the clock was set back", 300*second, 301*second, second)
	}
	var tr transit
	tr.observe(began, began, nil)
	if got := tr.longest(began.Add(second), nil); got != 0 {
		t.Errorf("longest for frames without a time = %v, want 0", got)
	}
}
