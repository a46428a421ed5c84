package server

import (
	"sync/atomic"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/run/broker"
)

// setLimit returns a function that sets a limit until the next start, or until Reload gets
// another limit.
func (s *Server) setLimit(limit *atomic.Pointer[config.Watermark]) func(fraction float64, bytes int64) error {
	return func(fraction float64, bytes int64) error {
		if fraction == 0 && limit == &s.memory {
			// In a configuration 0 means no limit. An operator who sets a memory limit of 0
			// while the node runs wants the alarm, as RabbitMQ raises it.
			bytes = max(bytes, 1)
		}
		limit.Store(&config.Watermark{Relative: fraction, Absolute: bytes})
		s.look()
		return nil
	}
}

// inForce is the configuration with the changes made in the running node.
func (s *Server) inForce() *config.Config {
	c := *s.config.Load()
	if changed := s.memory.Load(); changed != nil {
		c.Memory = *changed
	}
	if changed := s.disk.Load(); changed != nil {
		c.Disk = *changed
	}
	return &c
}

// setAlarm raises an alarm by hand, whatever memory and disk say, or takes that back.
func (s *Server) setAlarm(a broker.Alarm, on bool) {
	s.looking.Lock()
	if on {
		s.byHand |= a
	} else {
		s.byHand &^= a
	}
	s.looking.Unlock()
	s.look()
}
