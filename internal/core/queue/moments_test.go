package queue

import (
	"fmt"
	"math"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/moment"
)

// far are spans that somebody may configure and nobody will see the end of.
var far = []int64{1 << 53, 1 << 62, 1<<62 + 1, math.MaxInt64 - 1_750_000_000_000, math.MaxInt64 - 1, math.MaxInt64}

const today = 1_750_000_000_000

func types(t *testing.T, f func(t *testing.T, config Config)) {
	for _, config := range []Config{{MaxPriority: -1}, {Type: Quorum, MaxPriority: -1}, {Type: Quorum, MaxPriority: -1, Strict: true}, {MaxPriority: -1, Strict: true}} {
		t.Run(fmt.Sprintf("type %d, strict %v", config.Type, config.Strict), func(t *testing.T) { f(t, config) })
	}
}

func TestAQueueThatExpiresInAgesStays(t *testing.T) {
	types(t, func(t *testing.T, config Config) {
		for _, span := range far {
			m := New(config, unlimited(func(s *Settings) { s.Expires = span }), &Pages{}, &nobody{}, today)
			if m.Unused(today) || m.Unused(today+1<<40) {
				t.Errorf("expires %d: the queue goes at once", span)
			}
			if due := m.NextDue(); due < today {
				t.Errorf("expires %d: the worker is to look at %d", span, due)
			}
		}
	})
}

func TestADeliveryWithAgesToSettleItStaysOut(t *testing.T) {
	types(t, func(t *testing.T, config Config) {
		for _, span := range far {
			for _, own := range []bool{false, true} {
				s := newScript(config, unlimited(func(s *Settings) {
					if s.ConsumerTimeout = span; own {
						s.ConsumerTimeout = -1
					}
				}))
				c := &Consumer{Tag: "c", Timeout: span}
				if !own {
					c.Timeout = 0
				}
				s.Attach(today, c)
				s.publish(today, -1)
				if due := s.NextDue(); due != 0 && due < today {
					t.Errorf("timeout %d: the worker is to look at %d", span, due)
				}
				s.Tick(today+1000, sliceLimit)
				if out := s.Totals().Out; out != 1 || c.stale != 0 {
					t.Errorf("timeout %d: %d deliveries out, %d timed out; want it out", span, out, c.stale)
				}
			}
		}
	})
}

// returned notes until when entries of a queue wait.
type returned struct {
	nobody
	until []int64
}

func (r *returned) Returned(_ ID, _ Counts, until int64) { r.until = append(r.until, until) }

func TestARetryInAgesIsNeverNegative(t *testing.T) {
	spans := append([]int64{1, 1000}, far...)
	for _, least := range spans {
		for _, most := range append([]int64{0}, spans...) {
			for _, factor := range []float64{0, 1, 2, 1e9, 1e300, math.Inf(1), math.NaN()} {
				for _, jitter := range []float64{0, 0.5, 1, math.NaN()} {
					for _, times := range []uint32{0, 1, 2, 3, 1000, math.MaxUint32} {
						r := Retry{Type: RetryAll, Min: least, Max: most, Multiplier: factor, Jitter: jitter}
						if ms := r.wait(1, Counts{Deliveries: times, Acquired: times}); ms < 1 || ms > moment.Last {
							t.Fatalf("%+v waits %d ms after %d failures", r, ms, times)
						}
					}
				}
			}
		}
	}
}

func TestAReturnedMessageWaitsForAMomentThatThereIs(t *testing.T) {
	for _, retry := range []Retry{
		{Type: RetryAll, Min: 1 << 62, Max: math.MaxInt64},
		{Type: RetryAll, Min: 1000, Max: math.MaxInt64, Multiplier: 1e300},
		{Type: RetryAll, Min: math.MaxInt64, Max: math.MaxInt64, Multiplier: 2, Jitter: 1},
	} {
		sink := &returned{}
		m := New(Config{Type: Quorum, MaxPriority: -1}, unlimited(func(s *Settings) { s.Retry = retry }), &Pages{}, sink, today)
		c := &Consumer{Tag: "c"}
		m.Attach(today, c)
		id, _ := m.Enqueue(today, &Entry{Content: Content{Body: 1, Logged: true}, Priority: -1, TTL: -1})
		m.Flow(today, id)
		for k := range 3 {
			if !m.Return(today, id, c, ReturnFailed) {
				break // it waits
			}
			if at := sink.until[k]; at < today || at > moment.Last {
				t.Fatalf("%+v: it waits until %d", retry, at)
			}
			m.Flow(today, 0)
		}
		if m.Totals().Delayed != 1 {
			t.Errorf("%+v: %+v, want it to wait", retry, m.Totals())
		}
	}
}

// What is due at the end of time must be found in a page that was put away.
func TestMomentsAtTheEndOfTimeAreKept(t *testing.T) {
	for _, rules := range []deadletter.Rules{{}, {Profile: deadletter.ApsaraMQ, Retention: math.MaxInt64}, {Profile: deadletter.ApsaraMQ, Retention: moment.Last}} {
		for _, span := range far {
			m := New(Config{MaxPriority: -1}, unlimited(func(s *Settings) { s.Rules = rules }), &Pages{}, &nobody{}, today)
			id, _ := m.Enqueue(today, &Entry{Content: Content{Body: 1, Logged: true}, Priority: -1, TTL: span, Delay: span})
			due := m.Due(id)
			if due < today || due > moment.Last {
				t.Errorf("rules %+v, span %d: due at %d", rules, span, due)
			}
		}
	}
}

// A moment near the end of time, which a page's column cannot hold, is looked at again when the column says so, not
// at once.
func TestTheWorkerDoesNotLookAtWhatIsDueInAges(t *testing.T) {
	types(t, func(t *testing.T, config Config) {
		for _, span := range far {
			m := New(config, Unlimited(), &Pages{}, &nobody{}, today)
			m.SetCold(newShelf())
			for range 3 {
				m.Enqueue(today, &Entry{Content: Content{Body: 1, Logged: true}, TTL: span, Priority: -1})
				if err := m.Check(); err != nil {
					t.Errorf("TTL %d: %v", span, err)
				}
				if due := m.NextDue(); due != 0 && due < today {
					t.Errorf("TTL %d: the worker is to look at %d", span, due)
				}
				m.Tick(today, sliceLimit)
				if due := m.NextDue(); due < today+1<<31 {
					t.Errorf("TTL %d: the worker is to look at %d, again and again", span, due)
				}
			}
		}
	})
}
