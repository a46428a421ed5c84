package broker

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// The system's clock steps back and forth while time passes. The queues' clock never goes back and never stands still: of
// the time that passes it shows 15/16 at least. It never shows less than the system's clock, and comes back to it.
func TestTheClockNeverStandsStill(t *testing.T) {
	const hour = 3600_000
	for _, step := range []int64{10_000, 50_000, 2 * hour, 5 * 365 * 24 * hour} {
		for _, steps := range [][]int64{{-step}, {step, -step}, {-step, step}, {step, -step, -step, step}} {
			t.Run(fmt.Sprint(steps), func(t *testing.T) {
				wrong := int64(0)
				c := newClock(func(t time.Time) int64 { return t.UnixMilli() + wrong })
				at := c.made
				begun, last := c.at(at), c.at(at)
				furthest := int64(0)
				for i := range 6_000 { // ten minutes
					if i%1000 == 500 && i/1000 < len(steps) {
						wrong += steps[i/1000]
						furthest = max(furthest, wrong)
					}
					at = at.Add(100 * time.Millisecond)
					now := c.at(at)
					if now < last+100*15/16-2*apart && now < begun+furthest || now < last {
						t.Fatalf("after %d s it goes from %d to %d", i/10, last-begun, now-begun)
					}
					if wall := c.wall(at); now < wall {
						t.Fatalf("after %d s it is %d ms behind the system's", i/10, wall-now)
					}
					last = now
				}
				passed := int64(600_000)
				if shown := last - begun; shown < passed*15/16-apart || shown > passed+max(furthest, 0)+apart {
					t.Errorf("of %d ms it shows %d, and the system's clock was %d ms ahead at most", passed, shown, furthest)
				}
			})
		}
	}
	c := newClock(nil)
	c.catchUp(c.made.UnixMilli() + 3000)
	if now := c.now(); now < c.made.UnixMilli()+3000 {
		t.Errorf("it caught up to %d of 3000 ms", now-c.made.UnixMilli())
	}
	if late := c.at(c.made.Add(80*time.Second)) - c.made.UnixMilli(); late < 80_000 {
		t.Errorf("after 80 s it shows %d ms", late)
	}
}

// The clock is years ahead when the last message comes, and the node is killed before any checkpoint. The next start goes on from
// there: by a clock that is right again the message would wait for years.
func TestAStartGoesOnWhereTheClockWas(t *testing.T) {
	const years = 5 * 365 * 24 * 3600_000
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			wrong := new(atomic.Int64)
			o := Options{Wall: func(t time.Time) int64 { return t.UnixMilli() + wrong.Load() }}
			d := newDisk()
			c := startWith(t, d, o)
			mustDeclare(t, c, "work", amqp091.Field{Key: "x-queue-type", Value: kind}, amqp091.Field{Key: "x-message-ttl", Value: int64(3600_000)})
			wrong.Store(years)
			was := c.b.now()
			if !offer(t, c, "work", "m") {
				t.Fatal("not routed")
			}
			d = d.crash()
			wrong.Store(0)
			c = startWith(t, d, o)
			if now := c.b.now(); now < was-noted || ready(t, c, "work") != 1 {
				t.Errorf("it shows %d ms less than before; %d messages", was-now, ready(t, c, "work"))
			}
		})
	}
}

// A clock that was years ahead once stays so over a start, and is set right by ResetClock, also for the starts after: the log says by how much.
// Nothing dies of it, and what comes after it into a queue expires before what got its deadline while the clock was ahead.
func TestAStartSetsTheClockRight(t *testing.T) {
	const years = 5 * 365 * 24 * 3600_000
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			wrong := new(atomic.Int64)
			log := &lockedBuffer{}
			o := Options{Wall: func(t time.Time) int64 { return t.UnixMilli() + wrong.Load() }, Logger: slog.New(slog.NewTextHandler(log, nil))}
			d := newDisk()
			c := startWith(t, d, o)
			wrong.Store(years)
			publishTo := func(queue string, ttl int64) {
				t.Helper()
				mustDeclare(t, c, queue, amqp091.Field{Key: "x-queue-type", Value: kind}, amqp091.Field{Key: "x-message-ttl", Value: ttl})
				if !offer(t, c, queue, "m") {
					t.Fatal("not routed")
				}
			}
			soon := 0
			goesOn := func(isAhead bool) {
				t.Helper()
				if ahead := c.b.ClockAhead(); ahead > years/2*time.Millisecond != isAhead {
					t.Errorf("it is %v ahead of the system's", ahead)
				}
				soon++
				queue := fmt.Sprint("soon", soon) // the crash may bring back what is in the one before
				publishTo(queue, 50)
				eventually(t, "the message expires", func() bool { return ready(t, c, queue) == 0 })
				raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{Expiration: new("50")})
				props, err := amqp091.ParseProps(raw)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.PublishOne(&Publication{Key: []byte("later"), Raw: raw, Props: props}); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the message behind expires", func() bool { return ready(t, c, "later") == 1 })
			}
			publishTo("later", 3600_000)
			wrong.Store(0)
			goesOn(true)
			for i, reset := range []bool{false, true, false, true} {
				d = d.crash()
				o.ResetClock = reset
				c = startWith(t, d, o)
				back, nothing := strings.Count(log.String(), "was set back to the system's\" by=4"), strings.Count(log.String(), "nothing to set back")
				if wantBack, wantNothing := min(i, 1), i/3; back != wantBack || nothing != wantNothing {
					t.Errorf("start %d: %d lines of a clock that was set back and %d of one that was not, want %d and %d:\n%s", i, back, nothing, wantBack, wantNothing, log.String())
				}
				goesOn(i == 0)
			}
		})
	}
}

// noted is how old the moment may be, in milliseconds, that a start finds in the journal.
const noted = 1000

// However seldom the clock is read, it gives back what it is ahead. The workers of a quiet node read it every ten seconds.
func TestTheClockOfAQuietNodeComesBack(t *testing.T) {
	for _, every := range []time.Duration{10 * time.Millisecond, 999 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		wrong := int64(0)
		c := newClock(func(t time.Time) int64 { return t.UnixMilli() + wrong })
		at := c.made.Add(time.Hour) // it was right for long
		last := c.at(at)
		wrong = -10_000
		for begun := at; at.Sub(begun) < 5*time.Minute; {
			at = at.Add(every)
			now := c.at(at)
			if least := every.Milliseconds()*15/16 - 2*apart; now < last+least {
				t.Fatalf("read every %v: %d ms pass", every, now-last)
			}
			last = now
		}
		if ahead := last - c.wall(at); ahead > apart {
			t.Errorf("read every %v it is still %d ms ahead after five minutes", every, ahead)
		}
	}
}

// What the clock gives back is not taken from a moment that it has caught up with meanwhile.
func TestTheClockShowsWhatItCaughtUpWith(t *testing.T) {
	c := newClock(func(t time.Time) int64 { return t.UnixMilli() - 60_000 })
	c.lead.Add(60_000)
	c.made = c.made.Add(-900 * time.Millisecond) // it is ahead
	c.now()
	c.made = c.made.Add(-900 * time.Millisecond) // and time passes
	moment := c.made.UnixMilli() + 30_000
	c.catchUp(moment)
	if now := c.now(); now < moment {
		t.Errorf("it shows a moment %d ms before the one it caught up with", moment-now)
	}
}

// A start that sets the clock right does not let quorum queues stand still, also if the clock was ahead by less than what makes their own
// clocks go back.
func TestAResetOfLessThanAMinute(t *testing.T) {
	wrong := new(atomic.Int64)
	o := Options{Wall: func(t time.Time) int64 { return t.UnixMilli() + wrong.Load() }}
	d := newDisk()
	c := startWith(t, d, o)
	wrong.Store(45_000)
	mustDeclare(t, c, "q", amqp091.Field{Key: "x-queue-type", Value: "quorum"}, amqp091.Field{Key: "x-message-ttl", Value: int64(50)})
	if !offer(t, c, "q", "m") {
		t.Fatal("not routed")
	}
	eventually(t, "the first expires", func() bool { return ready(t, c, "q") == 0 })
	wrong.Store(0)
	o.ResetClock = true
	c = startWith(t, d.crash(), o)
	if !offer(t, c, "q", "n") {
		t.Fatal("not routed")
	}
	eventually(t, "the next expires", func() bool { return ready(t, c, "q") == 0 })
}

// The number of a message has the queues' clock, which goes on when the wall clock has stepped back: a letter that a client has parked is dated by it.
func TestNumbersGoByTheQueuesClock(t *testing.T) {
	wrong := new(atomic.Int64)
	c := startWith(t, newDisk(), Options{Wall: func(t time.Time) int64 { return t.UnixMilli() + wrong.Load() }})
	wrong.Store(3600_000)
	mustDeclare(t, c, "q")
	number := func() int64 {
		t.Helper()
		if !offer(t, c, "q", "m") {
			t.Fatal("not routed")
		}
		return int64(c.b.serial.Load() >> message.SerialBits)
	}
	number()
	wrong.Store(0)
	if at, now := number(), c.b.Now(); at < now-1000 || at > now+1000 {
		t.Errorf("the number has %d, the queues' clock shows %d", at, now)
	}
}
