package queue

import (
	"testing"

	"bartleby.mq/internal/core/deadletter"
)

// A checkpoint may meet a death before it is routed. A crash undoes such a death, because the journal does not have
// it. An expired message, one beyond the limit, or one that failed too often dies again before a consumer gets it; a
// rejected message comes back as one more attempt. That is the same without the checkpoint, and no attempt is counted
// twice.
func TestWhatACheckpointMeetsDyingDiesAgain(t *testing.T) {
	apsara := deadletter.Rules{Profile: deadletter.ApsaraMQ}
	for _, c := range []struct {
		name   string
		rules  deadletter.Rules
		limit  int64 // of deliveries
		length int64
		ttl    int64
		kill   func(m *Machine, id ID, by *Consumer) // the second delivery is out
		reason deadletter.Reason                     // 0: it is ready
		count  uint32
	}{
		{"too many attempts", apsara, 1, -1, -1, func(m *Machine, id ID, by *Consumer) { m.Return(today, id, by, ReturnNack) }, deadletter.DeliveryLimit, 2},
		{"a connection that ends too often", apsara, 1, -1, -1, func(m *Machine, id ID, by *Consumer) { m.Return(today, id, by, ReturnClosed) }, deadletter.DeliveryLimit, 2},
		{"rejected", apsara, 5, -1, -1, func(m *Machine, id ID, by *Consumer) { m.Reject(today, id, by, true) }, 0, 2},
		{"rejected by nack", apsara, 5, -1, -1, func(m *Machine, id ID, by *Consumer) { m.Reject(today, id, by, false) }, 0, 2},
		{"rejected by RabbitMQ's rules", deadletter.Rules{}, -1, -1, -1, func(m *Machine, id ID, by *Consumer) { m.Reject(today, id, by, true) }, 0, 2},
		{"expired", apsara, 5, -1, 10, func(m *Machine, id ID, by *Consumer) { m.Return(today+100, id, by, ReturnNack) }, deadletter.Expired, 2},
		{"too much", apsara, 5, 0, -1, func(m *Machine, id ID, by *Consumer) {
			m.Detach(today, by)
			m.Return(today, id, by, ReturnNack)
			m.Flow(today, 0)
		}, deadletter.MaxLen, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings := Unlimited()
			settings.DeadLetter, settings.Rules, settings.DeliveryLimit, settings.TTL = true, c.rules, c.limit, c.ttl
			s := newShelf()
			m := New(Config{Durable: true, MaxPriority: -1}, settings, &Pages{Hash: s.Bytes}, &restored{}, today)
			m.SetCold(s)
			m.pages.Begin(1)
			by := &Consumer{Tag: "c"}
			m.Attach(today, by)
			id, _ := m.Enqueue(today, &Entry{Content: Content{Body: 1, Size: 10, Logged: true}, Priority: -1, TTL: -1})
			m.Flow(today, id)
			m.Return(today, id, by, ReturnReject) // which is a failure by either rules
			m.Flow(today, 0)
			settings.MaxLength = c.length
			m.Configure(today, settings)
			c.kill(m, id, by)
			if n := m.Totals(); n.Dying != 1 {
				t.Fatalf("%+v, want one dying", n)
			}
			back := checkpointed(t, m, s)
			back.Restored(today + 100)
			back.Tick(today+100, 100)
			if err := back.Check(); err != nil {
				t.Fatal(err)
			}
			v, _ := back.View(id)
			if c.reason == 0 {
				if n := back.Totals(); n.Ready != 1 || v.Counts.Deliveries != c.count {
					t.Errorf("%+v after %d failures, want it ready after %d", n, v.Counts.Deliveries, c.count)
				}
				return
			}
			deaths := back.Deaths(1, nil)
			if len(deaths) != 1 || deaths[0].Reason != c.reason || deaths[0].Counts.Deliveries != c.count {
				t.Errorf("%+v with deaths %+v, want %v after %d failures", back.Totals(), deaths, c.reason, c.count)
			}
		})
	}
}
