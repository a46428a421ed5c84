package queue

import "testing"

// While the deliveries of a client come back, no message is delivered, with one exception. A message with a TTL of 0
// goes to another consumer that can take it, as if it had come a moment before; it does not die of another client's
// end. A single active consumer is not passed by.
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
