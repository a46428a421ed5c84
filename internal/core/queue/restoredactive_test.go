package queue

import (
	"testing"

	"bartleby.mq/internal/core/queue/index"
)

// Deliveries of all consumers of a queue with a single active one have timed out. The first consumer that settles
// becomes the active one and stays it, also on a replica that was restored before that. Otherwise two replicas would
// deliver the next message to different consumers.
func TestWhoSettlesFirstIsTheActiveOneAfterARestoreToo(t *testing.T) {
	settings := unlimited(func(s *Settings) { s.ConsumerTimeout = 10 })
	config := Config{Type: Quorum, SingleActive: true, MaxPriority: -1, Durable: true}
	play := func(restored bool) uint64 {
		s := newScript(config, settings)
		s.pages.Log = index.Commands
		consumers := map[uint64]*Consumer{}
		for number := uint64(1); number <= 3; number++ {
			consumers[number] = &Consumer{Number: number, Tag: "c", Prefetch: 1}
			s.Attach(1000, consumers[number])
		}
		id := s.publish(1000, -1)
		for now := int64(1010); now <= 1030; now += 10 {
			s.Tick(now, sliceLimit)
		}
		s.Purge(nil)
		if restored {
			rest := s.AppendRest(nil)
			s = newScript(config, settings)
			s.pages.Log = index.Commands
			if _, err := s.RestoreRest(rest, func(c *Consumer) { consumers[c.Number] = c }); err != nil {
				t.Fatal(err)
			}
		}
		s.Ack(0, id, consumers[2])
		s.Flow(1031, 0)
		s.Ack(0, id, consumers[1])
		s.Flow(1031, 0)
		s.publish(1032, -1)
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		for number, c := range consumers {
			if c.Out() > 0 {
				return number
			}
		}
		return 0
	}
	if live, restored := play(false), play(true); live != 2 || restored != 2 {
		t.Errorf("consumer %d has the next message, that of a replica that was restored is %d; want 2, who settled first", live, restored)
	}
}
