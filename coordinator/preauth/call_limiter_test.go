package preauth

import "testing"

// X5: the number of calls without a good credential is limited, for each address and in all. A call that leaves makes room for one, even if it leaves
// twice.
func TestCallCounter(t *testing.T) {
	t.Attr("rules", "X5")
	p := newCallCounter(3, 2)
	var leave func()
	for i, ip := range []string{"a", "a", "a", "b", "c"} {
		left, ok := p.enter(ip)
		if want := i != 2 && i != 4; ok != want {
			t.Errorf("call %d of %s: %v", i, ip, ok)
		}
		if ok {
			leave = left
		}
	}
	leave()
	leave()
	if _, ok := p.enter("c"); !ok || p.all != 3 {
		t.Errorf("no room for another, %d there", p.all)
	}
}
