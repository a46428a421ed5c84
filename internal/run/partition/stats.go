package partition

// Add adds the counters of another queue.
func (s *Stats) Add(o *Stats) {
	s.Published += o.Published
	s.Confirmed += o.Confirmed
	s.Delivered += o.Delivered
	s.DeliveredNoAck += o.DeliveredNoAck
	s.Got += o.Got
	s.GotNoAck += o.GotNoAck
	s.GetNone += o.GetNone
	s.Acked += o.Acked
	s.Redelivered += o.Redelivered
	s.Returned += o.Returned
	s.Purged += o.Purged
	s.SetAside += o.SetAside
	s.Active = max(s.Active, o.Active)
	for reason := range s.Dead {
		for outcome := range s.Dead[reason] {
			s.Dead[reason][outcome] += o.Dead[reason][outcome]
		}
	}
}
