package queue

import "testing"

// DL-8.4: in strict mode the expired heads of a queue die a slice at a time, so that nobody waits for all of them,
// and the rest is due at once.
func TestDL_8_4_ExpiredHeadsDieInSlices(t *testing.T) {
	const n = 3*sliceLimit + 10
	for _, c := range []struct {
		name   string
		config Config
		slices []int
	}{
		{"classic", Config{Type: Classic, Strict: true, MaxPriority: -1}, []int{sliceLimit, sliceLimit, sliceLimit, 10}},
		{"quorum", Config{Type: Quorum, Strict: true, MaxPriority: -1}, []int{sliceLimit, sliceLimit, sliceLimit, 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAway(Unlimited(), 1)
			a.Machine = New(c.config, Unlimited(), a.pages, a, a.now)
			a.fill(n, func() int64 { return 1000 })
			a.now += 2000
			for k, want := range c.slices {
				if due := a.NextDue(); due > a.now {
					t.Fatalf("before slice %d something is due at %d, and it is %d", k, due, a.now)
				}
				before := len(a.ids)
				a.Tick(a.now, sliceLimit)
				if died := len(a.ids) - before; died != want {
					t.Errorf("%d died in slice %d, want %d", died, k, want)
				}
			}
			if a.Totals().Ready != 0 || a.NextDue() <= a.now {
				t.Errorf("%d are left, the next is due at %d", a.Totals().Ready, a.NextDue())
			}
		})
	}
}
