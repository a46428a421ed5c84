package share

import (
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

// Who comes into a full room gets a place of who has most, and the last that it took.
func TestWhoHasMostYields(t *testing.T) {
	r := NewRoom[string](4)
	var flood []*Place[string]
	for range 4 {
		flood = append(flood, r.Enter("flood"))
	}
	if r.Enter("flood") != nil {
		t.Error("a fifth place of four")
	}
	for i, who := range []string{"a", "b"} {
		p := r.Enter(who)
		if p == nil {
			t.Fatalf("%s has no place", who)
		}
		select {
		case <-flood[3-i].Yield():
		default:
			t.Errorf("the place %d was not given up for %s", 3-i, who)
		}
	}
	// Two, one, one: with a place more, a would have what the flood has left.
	if r.Enter("a") != nil {
		t.Error("a takes the place of somebody who would have less then")
	}
	flood[3].Leave()
	if r.Enter("a") != nil {
		t.Error("a place that was given up is given back")
	}
	flood[0].Leave()
	flood[0].Leave()
	if r.Enter("a") == nil {
		t.Error("a place that was left is not free")
	}
}

// Invariants of Room under random clients; and whoever has fewer than its share gets a place.
func TestARoomIsShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(1, 8).Draw(t, "places")
		r := NewRoom[int](places)
		var all []*Place[int]
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(all) > 0 && rapid.Bool().Draw(t, "leave") {
				all[rapid.IntRange(0, len(all)-1).Draw(t, "which")].Leave()
			} else {
				of := rapid.IntRange(0, 3).Draw(t, "owner")
				owners := len(r.held)
				if r.held[of] == nil {
					owners++
				}
				has := len(r.held[of])
				p := r.Enter(of)
				if p == nil && (has+1)*owners <= places {
					t.Fatalf("%d has %d of %d places, with %d owners, and gets no more", of, has, places, owners)
				}
				if p != nil {
					all = append(all, p)
				}
			}
			taken := 0
			for _, list := range r.held {
				if taken += len(list); len(list) == 0 {
					t.Fatal("an empty list")
				}
			}
			if taken != r.taken || taken > places {
				t.Fatalf("taken: %d, in lists %d, of %d", r.taken, taken, places)
			}
		}
	})
}

// Who waits for a place gets one that is left, the owners in turn; who gives up keeps no place from others.
func TestOwnersWaitInTurn(t *testing.T) {
	r := NewRoom[string](2)
	a, b := r.Enter("a"), r.Enter("b")
	got := make(chan *Place[string], 10)
	wait := func(of string, waiting int) {
		go func() { got <- r.Wait(of, nil) }()
		for there := 0; there < waiting; runtime.Gosched() {
			r.mu.Lock()
			there = 0
			for _, line := range r.waiting {
				there += len(line)
			}
			r.mu.Unlock()
		}
	}
	wait("a", 1)
	wait("a", 2)
	wait("b", 3)
	gone := make(chan struct{})
	close(gone)
	if r.Wait("a", gone) != nil {
		t.Error("a place for who is gone")
	}
	held := []*Place[string]{a, b}
	for i, want := range []string{"a", "b", "a"} {
		held[i].Leave()
		p := <-got
		if p.of != want {
			t.Errorf("the turn %d is of %s, want %s", i, p.of, want)
		}
		held = append(held, p)
	}
	held[3].Leave()
	held[4].Leave()
	if r.taken != 0 || len(r.next)+len(r.waiting)+len(r.held) != 0 {
		t.Errorf("in the end %d are taken, and %v wait", r.taken, r.next)
	}
}

// A place tells which was given up for it.
func TestAPlaceKnowsWhichWasGivenUpForIt(t *testing.T) {
	r := NewRoom[string](2)
	first, last := r.Enter("a"), r.Enter("a")
	if p := r.Enter("b"); p.Before() != last || first.Before() != nil {
		t.Error("it is another")
	}
}
