package queue

import "testing"

// A delayed message may become ready because somebody looks at the queue, because a message is refused, or because a
// get takes another one. It then goes to the consumers: a Tick is due at once and delivers it.
func TestALookHandsOutWhatHasWaited(t *testing.T) {
	for name, look := range map[string]func(s *script, now int64){
		"a look": func(s *script, now int64) { s.Expire(now) },
		"a get":  func(s *script, now int64) { s.GetFor(now, nil, true) },
		"a publish is refused": func(s *script, now int64) {
			s.Enqueue(now, &Entry{Content: Content{Body: 2, Logged: true}, Priority: -1, TTL: -1})
		},
	} {
		for _, kind := range []Type{Classic, Quorum} {
			s := newScript(Config{Type: kind, MaxPriority: -1}, unlimited(func(s *Settings) {
				s.Retry = Retry{Type: RetryAll, Min: 10}
				s.MaxLength, s.Overflow = 2, RejectPublish
			}))
			c := &Consumer{}
			s.Attach(1000, c)
			for _, id := range []ID{s.publish(1000, -1), s.publish(1000, -1)} {
				s.Return(1000, id, c, ReturnNack)
			}
			s.Flow(1000, 0)
			s.got = nil
			look(s, 1011)
			if due := s.NextDue(); due > 1011 {
				t.Errorf("%s, %v queue: %d are ready and a consumer waits for them, the next tick is at %d", name, kind, s.Totals().Ready, due)
			}
			s.Tick(1011, sliceLimit)
			if len(s.got) == 0 || s.Totals().Ready > 0 {
				t.Errorf("%s, %v queue: after a tick %d were handed out and %d are ready", name, kind, len(s.got), s.Totals().Ready)
			}
			if due := s.NextDue(); due <= 1011 {
				t.Errorf("%s, %v queue: after it the next tick is at %d", name, kind, due)
			}
		}
	}
}
