package admission

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Throttle slows down clients that guess passwords. It counts failures in a row for each
// user from each address, and for each address with any user. After the free failures it
// delays each answer twice as long as the last. A right password is never delayed, so that
// nobody can lock out others. If many answers are delayed at once, guesses come in a flood;
// then passwords are checked in turn. The password of a user that is not being guessed waits
// only for the turn of its address, and no check waits for long.
//
// Memory is bounded: the counts that were unused longest are forgotten.
type Throttle struct {
	now func() time.Time

	mu     sync.Mutex // guards what follows
	limits ThrottleLimits
	counts *simplelru.LRU[guess, *failures]
}

// ThrottleLimits say when and how long answers are delayed.
type ThrottleLimits struct {
	Free int           // failures in a row that are answered at once; 0: all
	Most time.Duration // longest delay of an answer
}

// guess names an address and a user; the user is "" in the count of all users.
type guess struct {
	from netip.Prefix
	user string
}

type failures struct {
	n      int
	held   []time.Time // until when the last answers are delayed, as many as make a flood
	turn   time.Time   // time of the next check in a flood
	lastAt time.Time
}

const (
	maxGuesses   = 10_000
	firstDelay   = 250 * time.Millisecond
	forgetAfter  = 15 * time.Minute
	maxHeld      = 8   // delayed answers for one user from one address
	maxName      = 128 // bytes of a user's name that distinguish it
	addressShare = 10  // an address may fail this many times as often as a user

	// floodPace is the time between two checks for one user from one address in a flood.
	floodPace = 20 * time.Millisecond
	// maxTurn is the longest wait for a check: a client must not give up before.
	maxTurn = 2 * time.Second
)

// NewThrottle returns a Throttle without counts.
func NewThrottle(l ThrottleLimits) *Throttle {
	counts, _ := simplelru.NewLRU[guess, *failures](maxGuesses, nil) // fails only for a size below 1
	return &Throttle{now: time.Now, limits: l, counts: counts}
}

// SetLimits changes the limits for later failures.
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

// Begin begins a login. The caller checks the password after wait, which is 0 except in a
// flood. An Attempt ends with one call of Succeeded or Failed, or is dropped.
func (t *Throttle) Begin(from netip.Addr, user string) (a Attempt, wait time.Duration) {
	network := NetworkOf(from)
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

// share is the factor by which an address may do more than one user.
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

// Failed counts the failure and returns the delay of its answer. The answer counts as
// delayed for this time even if the client disconnects, so that disconnecting does not help
// a guesser.
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

// hold notes a delayed answer. It need not keep more of them than make a flood.
func (f *failures) hold(until time.Time, flood int) {
	if len(f.held) >= flood {
		f.held = slices.Delete(f.held, 0, 1)
	}
	f.held = append(f.held, until)
}

// flood says whether at least flood answers are delayed.
func (f *failures) flood(now time.Time, flood int) bool {
	if len(f.held) < flood {
		return false
	}
	f.held = slices.DeleteFunc(f.held, func(until time.Time) bool { return !until.After(now) })
	return len(f.held) >= flood
}

// delay is the delay after the nth failure beyond the free ones.
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

// find returns the count of a guess, unless it is too old. REQUIRES: mu is held.
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

// NetworkOf is the network that counts as one address: an owner of an IPv6 address has a whole network.
func NetworkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the number of bits fits
	return p
}
