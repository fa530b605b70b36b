package preauth

import "testing"

// X5: the number of calls without a good credential is limited for each address and in total. A call that ends makes room for exactly one other, even if
// leave is called twice.
func TestCallCounter(t *testing.T) {
	t.Attr("rules", "X5")
	p := newCallCounter(3, 2)
	var leave func()
	for i, ip := range []string{"a", "a", "a", "b", "c"} {
		left, ok := p.enter(ip)
		if want := i != 2 && i != 4; ok != want {
			t.Errorf("call %d, from %s, was accepted: %v, want %v", i, ip, ok, want)
		}
		if ok {
			leave = left
		}
	}
	leave()
	leave()
	if _, ok := p.enter("c"); !ok || p.all != 3 {
		t.Errorf("the next call was accepted: %v, with %d calls in total, want true and 3", ok, p.all)
	}
}
