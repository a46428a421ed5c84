package queue

import "testing"

// While what a client held comes back nobody gets anything but what cannot wait: a message
// with a TTL of 0 goes to another consumer that can take it, as if it had come a moment
// before, and dies of nobody's end. A single active consumer is not passed by.
func TestAMessageThatCannotWaitIsDeliveredWhileOthersComeBack(t *testing.T) {
	for _, single := range []bool{false, true} {
		s := newScript(Config{MaxPriority: -1, SingleActive: single}, unlimited(func(*Settings) {}))
		s.Attach(today, &Consumer{Tag: "c"})
		s.Hush()
		s.publish(today, 0)
		want := 1
		if single {
			want = 0
		}
		if out := s.Totals().Out; out != want {
			t.Errorf("single active consumer %t: %d deliveries, want %d", single, out, want)
		}
		s.publish(today, -1)
		if out := s.Totals().Out; out != want {
			t.Errorf("single active consumer %t: %d deliveries with one that can wait, want %d", single, out, want)
		}
		s.Speak()
		s.Flow(today, 0)
		if out := s.Totals().Out; out != want+1 {
			t.Errorf("single active consumer %t: %d deliveries in the end, want %d", single, out, want+1)
		}
	}
}
