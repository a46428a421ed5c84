package queue

import (
	"testing"

	"bartleby.mq/internal/core/queue/index"
)

// scolded is a handed that notes how many timed-out deliveries were reported for a consumer.
type scolded struct {
	*handed
	told  []int
	taken []ID
}

func (s *scolded) TookBack(_ *Consumer, id ID) { s.taken = append(s.taken, id) }

func (s *scolded) TimedOut(_ *Consumer, n int) { s.told = append(s.told, n) }

// DL-12.7: deliveries that stay unsettled for too long come back a slice at a time, so that nobody waits for all of
// them, and the rest is due at once. The consumer gets nothing meanwhile, and the timeout is reported once.
func TestDL_12_7_TimeoutsComeInSlices(t *testing.T) {
	const n = 3*sliceLimit + 10
	for _, c := range []struct {
		name   string
		quorum bool
		slices []int
		told   int
	}{
		{"classic", false, []int{sliceLimit, sliceLimit, sliceLimit, 10}, 0},
		{"quorum", true, []int{sliceLimit, sliceLimit, sliceLimit, 10}, n},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, consumer := newHanded(c.quorum)
			s := &scolded{handed: h}
			h.sink = s
			h.deliverAll(n+1, consumer)
			h.now += h.settings.ConsumerTimeout
			for k, want := range c.slices {
				if due := h.NextDue(); due > h.now {
					t.Fatalf("before slice %d something is due at %d, and it is %d", k, due, h.now)
				}
				if len(s.told) > 0 {
					t.Fatalf("before slice %d the consumer was told", k)
				}
				out := consumer.Out()
				more := h.Tick(h.now, sliceLimit)
				if back := out - consumer.Out(); back != want || more != (k < len(c.slices)-1) {
					t.Errorf("%d came back in slice %d, want %d; more is %v", back, k, want, more)
				}
			}
			if consumer.Out() != 0 || h.NextDue() <= h.now {
				t.Errorf("%d are still out, the next is due at %d", consumer.Out(), h.NextDue())
			}
			if len(s.taken) != c.told {
				t.Errorf("it was told of %d that were taken back, want %d", len(s.taken), c.told)
			}
			if c.told == 0 && len(s.told) > 0 || c.told > 0 && (len(s.told) != 1 || s.told[0] != c.told) {
				t.Errorf("the consumer was told of %v, want %d", s.told, c.told)
			}
			if err := h.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// If a consumer settles the rest itself while it is being taken back, the timeout of what was taken back is reported.
func TestDL_12_7_WhoSettlesTheRestIsTold(t *testing.T) {
	h, consumer := newHanded(true)
	s := &scolded{handed: h}
	h.sink = s
	level := h.deliverAll(sliceLimit+11, consumer).Lane()
	h.now += h.settings.ConsumerTimeout
	h.Tick(h.now, sliceLimit)
	for seq := uint64(sliceLimit + 2); seq <= sliceLimit+11; seq++ {
		if !h.Ack(0, index.MakeID(level, seq), consumer) {
			t.Fatalf("entry %d was not out", seq)
		}
	}
	h.Tick(h.now, sliceLimit)
	if len(s.told) != 1 || s.told[0] != sliceLimit {
		t.Errorf("the consumer was told of %v, want %d", s.told, sliceLimit)
	}
}
