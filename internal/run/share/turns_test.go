package share

import (
	"net/netip"
	"slices"
	"testing"
)

// Who comes behind a hundred of another address waits for one of them.
func TestAddressesHaveTurns(t *testing.T) {
	many, few := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	turns := NewTurns[netip.Prefix](2)
	type waiter struct {
		from netip.Prefix
		turn chan struct{}
	}
	var line []waiter
	enter := func(from netip.Prefix) { line = append(line, waiter{from, turns.enter(from)}) }
	served := func() (now []netip.Prefix) {
		line = slices.DeleteFunc(line, func(w waiter) bool {
			select {
			case <-w.turn:
				now = append(now, w.from)
				return true
			default:
				return false
			}
		})
		return now
	}
	for range 100 {
		enter(many)
	}
	for range 2 {
		enter(few)
	}
	if got := served(); !slices.Equal(got, []netip.Prefix{many, many}) {
		t.Fatalf("first are %v", got)
	}
	for i, want := range []netip.Prefix{many, few, many, few, many, many} {
		turns.End()
		if got := served(); !slices.Equal(got, []netip.Prefix{want}) {
			t.Errorf("the turn %d is of %v, want %v", i+1, got, want)
		}
	}
	for len(line) > 0 {
		turns.End()
		if len(served()) != 1 {
			t.Fatal("nobody is served")
		}
	}
	turns.End()
	turns.End()
	if turns.free != 2 || len(turns.next)+len(turns.waiting) != 0 {
		t.Errorf("in the end: %d free, %v, %v", turns.free, turns.next, turns.waiting)
	}
}

// Who gives up keeps no place from others, whether it was waiting or has had its turn just then.
func TestWhoGivesUpKeepsNoPlace(t *testing.T) {
	a, b := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/64")
	turns := NewTurns[netip.Prefix](1)
	gone := make(chan struct{})
	if !turns.Begin(a, gone, nil) {
		t.Fatal("no place")
	}
	behind := turns.enter(b)
	last := turns.enter(b)
	close(gone)
	if turns.Begin(a, gone, nil) || turns.Begin(b, nil, gone) {
		t.Error("a place where there is none")
	}
	turns.End()
	<-behind
	turns.leave(b, behind) // its turn came just then
	<-last
	turns.End()
	if turns.free != 1 || len(turns.next)+len(turns.waiting) != 0 {
		t.Errorf("in the end: %d free, %v, %v", turns.free, turns.next, turns.waiting)
	}
}
