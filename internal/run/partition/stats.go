package partition

import "bartleby.mq/internal/core/queue"

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
	s.Credited.Delivered += o.Credited.Delivered
	s.Credited.DeliveredNoAck += o.Credited.DeliveredNoAck
	s.Credited.Acked += o.Credited.Acked
	s.Credited.Redelivered += o.Credited.Redelivered
	s.Unmerged += o.Unmerged
	s.Active = max(s.Active, o.Active)
	for reason := range s.Dead {
		for outcome := range s.Dead[reason] {
			s.Dead[reason][outcome] += o.Dead[reason][outcome]
		}
	}
}

// delivered counts a delivery.
func (s *CreditedStats) delivered(d *queue.Delivery) {
	if d.NoAck {
		s.DeliveredNoAck++
	} else {
		s.Delivered++
	}
	if d.Redelivered {
		s.Redelivered++
	}
}
