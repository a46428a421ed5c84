package server

import (
	"time"

	"bartleby.mq/internal/edge/metrics"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
)

// watchEvery is how often memory and disk are looked at. Both looks are a system
// call or two; RabbitMQ looks every 2.5 s at memory, and more seldom at the disk.
const watchEvery = time.Second

// watchResources raises and clears the alarms of BR-13.1 until the node stops.
//
// Between two ticks clients may send a part of what there is room for; whoever uses that
// up has it looked at again. So what is taken beyond a limit is bounded by bytes, however
// fast they come.
func (s *Server) watchResources() {
	s.broker.WatchIntake(s.look)
	s.look()
	s.done.Go(bug.Guarded(s.Logger, "the watch over memory and disk", func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		var again time.Time // when to look for the reserve; at once: a disk may be full within the first second
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
			case <-tick.C:
				s.look()
			}
		}
	}))
}

// look raises and clears the alarms by what there is now.
func (s *Server) look() {
	s.looking.Lock() // else an older reading might have the last word
	defer s.looking.Unlock()
	s.judge(s.room())
}

// judge compares what the node uses with what it may use.
func (s *Server) judge(n metrics.Node) {
	s.alarm(broker.Memory, n.MemoryLimit > 0 && n.Resident > n.MemoryLimit, "resident_bytes", n.Resident, n.MemoryLimit)
	s.alarm(broker.Disk, n.DiskFree >= 0 && n.DiskFree < n.DiskLimit, "free_bytes", n.DiskFree, n.DiskLimit)
	s.broker.ShortOfMemory(shortOfMemory(n))
	s.short = shortOfRoom(n, s.short)
	s.broker.ShortOfRoom(s.short, n.DiskFree)
	s.broker.AllowIntake(allowance(n))
}

// shortOfMemory says whether all but an eighth of the memory is used that may be.
func shortOfMemory(n metrics.Node) bool {
	return n.MemoryLimit > 0 && n.Resident > n.MemoryLimit-n.MemoryLimit/8
}

// shortRoom is how much beside the limit of free disk is little room: less than what the
// journal takes in advance for its newest segments. What it keeps of old ones is more; so there
// is plenty again only with several times as much.
const shortRoom, plentyRoom = 128 << 20, 512 << 20

// shortOfRoom says whether there is little room on the disk, if there was before.
func shortOfRoom(n metrics.Node, before bool) bool {
	enough := int64(shortRoom)
	if before {
		enough = plentyRoom
	}
	return n.DiskFree >= 0 && n.DiskFree-n.DiskLimit < enough
}

const (
	// leastIntake and mostIntake bound what clients may send between two looks, in bytes.
	// A look is two calls of the system, about 20 µs.
	leastIntake, mostIntake = 1 << 20, 64 << 20
	// intakeShare is the part of the room that they may use: what they send takes several
	// times its size, in buffers, as messages, and in the journal.
	intakeShare = 8
)

// allowance is how many bytes clients may send until memory and disk are looked at again.
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
	n := s.room()
	n.OpenFiles, n.MaxFiles = openFiles()
	return n
}

// room is nodeStatus for memory and disk only, which is soon told.
func (s *Server) room() metrics.Node {
	c := s.inForce()
	n := metrics.Node{
		Resident: residentMemory(), MemoryLimit: c.Memory.Limit(totalMemory()),
		DiskFree: -1, DiskLimit: c.Disk.Limit(totalMemory()),
	}
	if !s.private() {
		n.DiskFree = freeDisk(s.DataDir)
	}
	return n
}

// reserveAgain is the time after which a reserve that could not be made is tried again.
const reserveAgain = time.Minute

// reserve sees to it that there is a reserve if there is room for it, and says whether there is.
func (s *Server) reserve(n metrics.Node) (there bool, err error) {
	if there, err = keepReserve(s.DataDir, n.DiskFree, n.DiskLimit); err != nil {
		s.Logger.Warn("cannot create the reserve file for starting on a full disk", "data_dir", s.DataDir, "error", err)
	}
	return there, err
}
