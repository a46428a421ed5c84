package server

import (
	"time"

	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/metrics"
)

// watchEvery is how often memory and disk are looked at. Both looks are a system
// call or two; RabbitMQ looks every 2.5 s at memory, and more seldom at the disk.
const watchEvery = time.Second

// watchResources raises and clears the alarms of BR-13.1 until the node stops.
func (s *Server) watchResources() {
	s.judge(s.nodeStatus())
	s.done.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-s.stopc:
				return
			case <-tick.C:
				s.judge(s.nodeStatus())
			}
		}
	})
}

// judge compares what the node uses with what it may use.
func (s *Server) judge(n metrics.Node) {
	s.alarm(broker.Memory, n.MemoryLimit > 0 && n.Resident > n.MemoryLimit, "resident_bytes", n.Resident, n.MemoryLimit)
	s.alarm(broker.Disk, n.DiskFree >= 0 && n.DiskFree < n.DiskLimit, "free_bytes", n.DiskFree, n.DiskLimit)
}

func (s *Server) alarm(a broker.Alarm, on bool, what string, is, limit int64) {
	if on == (s.broker.ActiveAlarms()&a != 0) {
		return
	}
	if on {
		s.Logger.Warn("alarm raised, publishers are blocked", "alarm", a.String(), what, is, "limit", limit)
	} else {
		s.Logger.Info("alarm cleared", "alarm", a.String(), what, is, "limit", limit)
	}
	s.broker.SetAlarm(a, on)
}

// nodeStatus is what the process uses and may use.
func (s *Server) nodeStatus() metrics.Node {
	c := s.inForce()
	n := metrics.Node{
		Resident: residentMemory(), MemoryLimit: c.Memory.Limit(totalMemory()),
		DiskFree: -1, DiskLimit: c.Disk.Limit(totalMemory()),
	}
	if !s.private() {
		n.DiskFree = freeDisk(s.DataDir)
	}
	n.OpenFiles, n.MaxFiles = openFiles()
	return n
}
