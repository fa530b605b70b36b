package preauth

import "testing"

// X5: the number of calls without a good credential is limited for each address and in total. A call that ends makes room for exactly one other, even if
// leave is called twice. When all calls have ended, nothing is counted for any address.
func TestCallCounter(t *testing.T) {
	t.Attr("rules", "X5")
	p := newCallCounter(3, 2)
	var leaves []func()
	for i, ip := range []string{"a", "a", "a", "b", "c"} {
		leave, ok := p.enter(ip)
		if want := i != 2 && i != 4; ok != want {
			t.Errorf("call %d, from %s, was accepted: %v, want %v", i, ip, ok, want)
		}
		if ok {
			leaves = append(leaves, leave)
		}
	}
	last := leaves[len(leaves)-1]
	last()
	last()
	leave, ok := p.enter("c")
	if !ok || p.all != 3 {
		t.Fatalf("the next call was accepted: %v, with %d calls in total, want true and 3", ok, p.all)
	}
	for _, leave := range append(leaves, leave) {
		leave()
	}
	if p.all != 0 || len(p.ofPeer) != 0 {
		t.Errorf("%d calls are counted, by address %v, want none", p.all, p.ofPeer)
	}
}
