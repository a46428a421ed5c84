package admission

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// guesser fails again and again.
type guesser struct {
	t   *testing.T
	th  *Throttle
	now time.Time
}

func newGuesser(t *testing.T, l ThrottleLimits) *guesser {
	g := &guesser{t, NewThrottle(l), time.Now()}
	g.th.now = func() time.Time { return g.now }
	return g
}

func (g *guesser) fail(from, user string) time.Duration {
	g.t.Helper()
	a, wait := g.th.Begin(netip.MustParseAddr(from), user)
	if wait > 0 {
		g.t.Fatal("put off by ", wait)
	}
	d := a.Failed()
	g.now = g.now.Add(d)
	return d
}

// Failures beyond what is free are answered later and later, for that user from that
// address; a success, or time, forgets them.
func TestThrottle(t *testing.T) {
	g := newGuesser(t, ThrottleLimits{Free: 2, Most: 3 * time.Second})
	for i, want := range []time.Duration{0, 0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		if got := g.fail("192.0.2.1", "u"); got != want {
			t.Errorf("failure %d is held back %v, want %v", i+1, got, want)
		}
	}
	if d := g.fail("192.0.2.1", "other"); d != 0 {
		t.Errorf("another user is held back %v", d)
	}
	if d := g.fail("192.0.2.2", "u"); d != 0 {
		t.Errorf("another address is held back %v", d)
	}
	a, _ := g.th.Begin(netip.MustParseAddr("192.0.2.1"), "u")
	a.Succeeded()
	if d := g.fail("192.0.2.1", "u"); d != 0 {
		t.Errorf("after a success it is held back %v", d)
	}
	for range 5 {
		g.fail("192.0.2.1", "u")
	}
	g.now = g.now.Add(forgetAfter + time.Second)
	if d := g.fail("192.0.2.1", "u"); d != 0 {
		t.Errorf("after a long time it is held back %v", d)
	}
}

// Many users from one address are guesses too, and an IPv6 network is one address.
func TestThrottleOfAnAddress(t *testing.T) {
	g := newGuesser(t, ThrottleLimits{Free: 1, Most: time.Second})
	for i := range 2 * addressShare {
		d := g.fail(fmt.Sprintf("2001:db8::%x", i+1), fmt.Sprint("user", i))
		if (d > 0) != (i >= addressShare) {
			t.Errorf("failure %d is held back %v", i+1, d)
		}
	}
}

// While many answers are held back passwords are looked at in turn, and no turn is far away.
// Another user's guesses put nobody off for long, and none is refused unseen.
func TestThrottleOfAFlood(t *testing.T) {
	g := newGuesser(t, ThrottleLimits{Free: 1, Most: time.Second})
	from := netip.MustParseAddr("192.0.2.1")
	begin := func(user string) time.Duration {
		a, wait := g.th.Begin(from, user)
		_ = a.Failed()
		return wait
	}
	for i := range 1 + maxHeld { // the first is answered at once
		if wait := begin("u"); wait != 0 {
			t.Errorf("guess %d is put off by %v", i, wait)
		}
	}
	for i := range 3 {
		if wait := begin("u"); wait != time.Duration(i)*floodPace {
			t.Errorf("guess %d in the flood is put off by %v", i, wait)
		}
	}
	if _, wait := g.th.Begin(from, "v"); wait != 0 {
		t.Errorf("another user is put off by %v", wait)
	}
	for i := range 10_000 {
		if wait := begin(fmt.Sprint("user", i%100)); wait > maxTurn {
			t.Fatalf("guess %d is put off by %v", i, wait)
		}
	}
	if _, wait := g.th.Begin(from, "v"); wait == 0 || wait > maxTurn {
		t.Errorf("another user in a flood of the whole address is put off by %v", wait)
	}
	if _, wait := g.th.Begin(netip.MustParseAddr("192.0.2.2"), "u"); wait != 0 {
		t.Errorf("another address is put off by %v", wait)
	}
	g.now = g.now.Add(maxTurn)
	if _, wait := g.th.Begin(from, "v"); wait != 0 {
		t.Errorf("when all turns are over one is put off by %v", wait)
	}
}

func TestThrottleIsBounded(t *testing.T) {
	g := newGuesser(t, ThrottleLimits{Free: 1, Most: time.Second})
	for i := range 2 * maxGuesses {
		g.fail("192.0.2.1", fmt.Sprint("user", i))
	}
	if n := g.th.counts.Len(); n != maxGuesses {
		t.Errorf("%d counts, want %d", n, maxGuesses)
	}
}

func TestThrottleOff(t *testing.T) {
	g := newGuesser(t, ThrottleLimits{})
	for range 100 {
		if d := g.fail("192.0.2.1", "u"); d != 0 {
			t.Fatalf("held back %v", d)
		}
	}
}
