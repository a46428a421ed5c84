package admission

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Throttle slows down who guesses passwords. Failures in a row are counted for each user
// from each address, and for each address whatever the user; beyond what is free the
// answer to each is held back twice as long as the last. Who knows the password is not
// held back, so that nobody is locked out by others. While so many answers are being held
// back that guesses come in a flood, passwords are looked at in turn: that of a user who
// is not guessed at waits for the address's turn only, and nobody waits for long.
//
// Memory is bounded: the counts unused for longest are forgotten.
type Throttle struct {
	now func() time.Time

	mu     sync.Mutex // guards what follows
	limits ThrottleLimits
	counts *simplelru.LRU[guess, *failures]
}

// ThrottleLimits say when and how much is held back.
type ThrottleLimits struct {
	Free int           // failures in a row that are answered at once; 0: all are
	Most time.Duration // that an answer is held back
}

// guess is who guesses what; the user is "" where all count.
type guess struct {
	from netip.Prefix
	user string
}

type failures struct {
	n      int
	held   []time.Time // until when the last answers are held back, as many as make a flood
	turn   time.Time   // of the next to be looked at in a flood
	lastAt time.Time
}

const (
	maxGuesses   = 10_000
	firstDelay   = 250 * time.Millisecond
	forgetAfter  = 15 * time.Minute
	maxHeld      = 8   // answers held back for one user from one address
	maxName      = 128 // bytes of a user's name that tell it from others
	addressShare = 10  // an address may fail so many times as often as a user

	// floodPace is between two looks at a password for one user from one address in a flood.
	floodPace = 20 * time.Millisecond
	// maxTurn is what a look is put off at most: it must not be so long that a client gives up.
	maxTurn = 2 * time.Second
)

// NewThrottle returns a Throttle that has seen nothing.
func NewThrottle(l ThrottleLimits) *Throttle {
	counts, _ := simplelru.NewLRU[guess, *failures](maxGuesses, nil) // fails only for a size below 1
	return &Throttle{now: time.Now, limits: l, counts: counts}
}

// SetLimits changes the limits for failures to come.
func (t *Throttle) SetLimits(l ThrottleLimits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limits = l
}

// Attempt is one login under way.
type Attempt struct {
	t    *Throttle
	keys [2]guess
}

// Begin begins a login. In a flood the password is to be looked at only after wait. Every
// Attempt ends with one call of Succeeded or Failed, or is dropped.
func (t *Throttle) Begin(from netip.Addr, user string) (a Attempt, wait time.Duration) {
	network := networkOf(from)
	user = user[:min(len(user), maxName)]
	a = Attempt{t, [2]guess{{network, user}, {network, ""}}}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for i, k := range a.keys {
		f := t.find(k)
		if f == nil || !f.flood(now, maxHeld*share(i)) {
			continue
		}
		if f.turn.Before(now) {
			f.turn = now
		}
		wait = max(wait, f.turn.Sub(now))
		if next := f.turn.Add(floodPace / time.Duration(share(i))); next.Sub(now) <= maxTurn {
			f.turn = next
		}
	}
	return a, wait
}

// share is how much more an address may do than one user of it.
func share(i int) int {
	if i == 0 {
		return 1
	}
	return addressShare
}

// Succeeded forgets the failures of that user from that address.
func (a Attempt) Succeeded() {
	a.t.mu.Lock()
	defer a.t.mu.Unlock()
	a.t.counts.Remove(a.keys[0])
}

// Failed counts the failure and returns how long its answer is to be held back. It counts as
// held back for so long, whether or not anybody still waits for it: who guesses and leaves is
// no slower than who stays.
func (a Attempt) Failed() (delay time.Duration) {
	t := a.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limits.Free <= 0 {
		return 0
	}
	now := t.now()
	var counts [2]*failures
	for i, k := range a.keys {
		f := t.find(k)
		if f == nil {
			f = t.add(k)
		}
		f.n++
		f.lastAt = now
		delay = max(delay, t.delay(f.n-t.limits.Free*share(i)))
		counts[i] = f
	}
	if delay > 0 {
		for i, f := range counts {
			f.hold(now.Add(delay), maxHeld*share(i))
		}
	}
	return delay
}

// hold notes an answer that is held back. More than make a flood need not be known.
func (f *failures) hold(until time.Time, flood int) {
	if len(f.held) >= flood {
		f.held = slices.Delete(f.held, 0, 1)
	}
	f.held = append(f.held, until)
}

// flood says whether so many answers are held back.
func (f *failures) flood(now time.Time, flood int) bool {
	if len(f.held) < flood {
		return false
	}
	f.held = slices.DeleteFunc(f.held, func(until time.Time) bool { return !until.After(now) })
	return len(f.held) >= flood
}

// delay is for the nth failure beyond what is free.
func (t *Throttle) delay(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	d := firstDelay
	for ; n > 1 && d < t.limits.Most; n-- {
		d *= 2
	}
	return min(d, t.limits.Most)
}

// find returns what is known of a guess, unless it is too old. REQUIRES: mu is held.
func (t *Throttle) find(k guess) *failures {
	f, ok := t.counts.Get(k)
	if ok && t.now().Sub(f.lastAt) > forgetAfter {
		t.counts.Remove(k)
		return nil
	}
	return f
}

// add begins to count. REQUIRES: mu is held.
func (t *Throttle) add(k guess) *failures {
	k.user = strings.Clone(k.user) // and not all of what it came in, for as long as it counts
	f := new(failures)
	t.counts.Add(k, f)
	return f
}

// networkOf is what counts as one address: whoever has one of IPv6 has a whole network.
func networkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the number of bits fits
	return p
}
