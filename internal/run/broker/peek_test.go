package broker

import (
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// Looking changes nothing: not the order, the redelivered flags, or the counters.
func TestPeekChangesNothing(t *testing.T) {
	c := open(t, Options{})
	mustDeclare(t, c, "q")
	for _, body := range []string{"m1", "m2", "m3"} {
		publish(t, c, "", "q", body, amqp091.PropertyList{})
	}
	for range 2 {
		var seen []string
		if err := c.Peek("q", 2, func(s *Shown) bool {
			if s.Redelivered {
				t.Error("a message that was looked at is redelivered")
			}
			seen = append(seen, string(s.Body))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 2 || seen[0] != "m1" || seen[1] != "m2" {
			t.Errorf("saw %v", seen)
		}
	}
	g, ok, err := c.Get("q", true)
	if err != nil || !ok || g.Redelivered || g.Left != 2 {
		t.Errorf("after looking: %+v, %t, %v", g, ok, err)
	}
}
