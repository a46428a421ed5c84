package server

import (
	"cmp"
	"time"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/edge/metrics"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
)

// watchEvery is how often memory and disk are checked. Each check is a system call or
// two; RabbitMQ checks memory every 2.5 s, and the disk less often.
const watchEvery = time.Second

// watchResources raises and clears the alarms of BR-13.1, and has the management API take its samples, until the node stops.
//
// Between two ticks clients may send a part of the free memory and disk space; when they have
// used it up, both are checked again. So the excess over a limit is bounded in bytes, however
// fast clients send.
func (s *Server) watchResources() {
	s.broker.WatchIntake(s.look)
	s.look()
	s.done.Go(bug.Guarded(s.Logger, "the watch over memory and disk", func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		var again time.Time // when to check the reserve; first at once, because a disk may fill within a second
		sampled := time.Now()
		s.api.Sample(sampled)
		for reserved := s.private(); ; {
			if now := time.Now(); !reserved && !now.Before(again) {
				var err error
				if reserved, err = s.reserve(s.room()); err != nil {
					again = now.Add(reserveAgain) // not a line each second
				}
			}
			select {
			case <-s.stopc:
				return
			case now := <-tick.C:
				s.look()
				if now.Sub(sampled) >= api.SampleEvery {
					sampled = now
					s.api.Sample(now)
				}
			}
		}
	}))
}

// look checks memory and disk and raises or clears the alarms.
func (s *Server) look() {
	s.looking.Lock() // so that an older reading cannot override a newer one
	defer s.looking.Unlock()
	s.judge(s.room())
	s.compareClocks(s.broker.ClockAhead())
}

// farAhead is from when the log says that the queues' clock is ahead of the system's.
const farAhead = time.Minute

// compareClocks tells once that the queues' clock is ahead of the system's, and once that it is no longer.
func (s *Server) compareClocks(ahead time.Duration) {
	switch {
	case ahead > farAhead && !s.clockAhead:
		s.Logger.Warn("the clock of this node's queues is ahead of the system's, which was ahead once, or stepped back: times of day that queues show are wrong by as much. "+
			"It gives back a sixteenth of the time that passes; 'bartleby server --reset-clock' sets it right at once", "ahead", ahead.Round(time.Second))
	case ahead <= farAhead/2 && s.clockAhead:
		s.Logger.Info("the clock of this node's queues is the system's again")
	default:
		return
	}
	s.clockAhead = !s.clockAhead
}

// judge compares the node's use with its limits.
func (s *Server) judge(n metrics.Node) {
	s.alarm(broker.Memory, n.MemoryLimit > 0 && n.Resident > n.MemoryLimit, "resident_bytes", n.Resident, n.MemoryLimit)
	s.alarm(broker.Disk, n.DiskFree >= 0 && n.DiskFree < n.DiskLimit, "free_bytes", n.DiskFree, n.DiskLimit)
	s.broker.ShortOfMemory(shortOfMemory(n))
	s.short = shortOfRoom(n, s.short)
	s.broker.ShortOfRoom(s.short, n.DiskFree)
	s.broker.AllowIntake(allowance(n))
}

// shortOfMemory says whether less than an eighth of the allowed memory is left.
func shortOfMemory(n metrics.Node) bool {
	return n.MemoryLimit > 0 && n.Resident > n.MemoryLimit-n.MemoryLimit/8
}

// shortRoom is little space beside the limit of free disk: less than the journal allocates in
// advance for its newest segments. The journal keeps more than that of old segments, so
// plentyRoom is several times as much.
const shortRoom, plentyRoom = 128 << 20, 512 << 20

// shortOfRoom says whether there is little disk space; before is the previous result.
func shortOfRoom(n metrics.Node, before bool) bool {
	enough := int64(shortRoom)
	if before {
		enough = plentyRoom
	}
	return n.DiskFree >= 0 && n.DiskFree-n.DiskLimit < enough
}

const (
	// leastIntake and mostIntake bound what clients may send between two checks, in bytes.
	// A check is two system calls, about 20 µs.
	leastIntake, mostIntake = 1 << 20, 64 << 20
	// intakeShare is the share of the free space that clients may use: their data takes
	// several times its size, in buffers, as messages, and in the journal.
	intakeShare = 8
)

// allowance is how many bytes clients may send until memory and disk are checked again.
func allowance(n metrics.Node) int64 {
	room := int64(mostIntake * intakeShare)
	if n.MemoryLimit > 0 {
		room = min(room, n.MemoryLimit-n.Resident)
	}
	if n.DiskFree >= 0 {
		room = min(room, n.DiskFree-n.DiskLimit)
	}
	return max(room/intakeShare, leastIntake)
}

// alarm raises or clears an alarm. An operator may have raised it: then it stays until he takes it back.
func (s *Server) alarm(a broker.Alarm, on bool, what string, is, limit int64) {
	byHand := s.byHand&a != 0
	if on = on || byHand; on == (s.broker.ActiveAlarms()&a != 0) {
		return
	}
	if on {
		s.Logger.Warn("alarm raised, publishers are blocked", "alarm", a.String(), what, is, "limit", limit, "by_hand", byHand)
	} else {
		s.Logger.Info("alarm cleared", "alarm", a.String(), what, is, "limit", limit)
	}
	s.broker.SetAlarm(a, on)
}

// nodeStatus returns the resources of the process and their limits.
func (s *Server) nodeStatus() metrics.Node {
	n := s.room()
	n.OpenFiles, n.MaxFiles = openFiles()
	return n
}

// room is nodeStatus for memory and disk only, which is faster.
func (s *Server) room() metrics.Node {
	c := s.inForce()
	n := metrics.Node{
		Resident: residentMemory(), MemoryLimit: c.Memory.Limit(memoryOf(c)),
		DiskFree: -1, DiskLimit: c.Disk.Limit(memoryOf(c)),
	}
	if !s.private() {
		n.DiskFree = freeDisk(s.DataDir)
	}
	return n
}

// reserveAgain is the time after which a reserve that could not be made is tried again.
const reserveAgain = time.Minute

// reserve makes the reserve if there is space for it, and says whether there is one.
func (s *Server) reserve(n metrics.Node) (there bool, err error) {
	if there, err = keepReserve(s.DataDir, n.DiskFree, n.DiskLimit); err != nil {
		s.Logger.Warn("cannot create the reserve file for starting on a full disk", "data_dir", s.DataDir, "error", err)
	}
	return there, err
}

// memoryOf is the memory that relative limits are a share of, in bytes.
func memoryOf(c *config.Config) int64 { return cmp.Or(c.TotalMemory, totalMemory()) }
