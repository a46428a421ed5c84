package broker

import (
	"fmt"
	"testing"
	"time"
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
