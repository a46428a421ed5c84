package server

import (
	"cmp"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
)

// defaultMemory is taken for the machine's where it is not known, in bytes.
const defaultMemory = 4 << 30

// leastBudget is what a budget is at least, in bytes, as the configuration has it.
const leastBudget = 1 << 20

// storage divides the memory there is: an eighth for the index of queues, a
// sixteenth for messages, unless the configuration says otherwise; but of what may be used before the alarm is raised
// no more than a quarter, and an eighth.
func (s *Server) storage() broker.Storage {
	c := s.Config.Storage
	total := cmp.Or(totalMemory(), defaultMemory)
	index, cache := total/8, total/16
	if limit := s.Config.Memory.Limit(total); limit > 0 {
		index, cache = min(index, max(limit/4, leastBudget)), min(cache, max(limit/8, leastBudget))
	}
	return broker.Storage{
		IndexBudget: cmp.Or(c.IndexBudget, index), CacheBudget: cmp.Or(c.CacheBudget, cache),
		CheckpointBytes: c.CheckpointBytes, CheckpointOperations: c.CheckpointOperations, CheckpointEvery: c.CheckpointEvery,
	}
}

// LimitGoMemory makes Go's collector work harder where the heap is large, and before
// the alarm has to be raised: at four fifths of the watermark, less what messages
// take outside of its heap. It is for a process that is a node and nothing else. Whoever
// sets GOGC or GOMEMLIMIT knows better.
func (s *Server) LimitGoMemory() {
	if os.Getenv("GOGC") == "" {
		s.tendCollector()
	}
	total := totalMemory()
	if os.Getenv("GOMEMLIMIT") != "" || total == 0 {
		return
	}
	limit := s.Config.Memory.Limit(total)
	if limit <= 0 {
		return
	}
	debug.SetMemoryLimit(max(limit*4/5-s.storage().CacheBudget, limit/4))
}

// defaultCollectorPercent is Go's own.
const defaultCollectorPercent = 100

// collectorPercent is how much garbage there may be, in percent of what lives; scanned
// is how many bytes of that the collector looks at. Most of a heap that is large by its messages is
// the index of queues, which it hardly has to look at: half of the memory for garbage would be a waste.
// A heap that is large by its queues and connections costs it much, and it may come less often.
func collectorPercent(live, scanned uint64) int {
	const garbage, least = 16 << 20, 8
	if live <= garbage {
		return defaultCollectorPercent
	}
	return int(max(defaultCollectorPercent*max(garbage, scanned)/live, least))
}

// tendCollector keeps the collector's pace to what lives, until the node stops.
func (s *Server) tendCollector() {
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	s.done.Go(bug.Guarded(s.Logger, "the pace of the collector", func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for now := defaultCollectorPercent; ; {
			select {
			case <-s.stopc:
				debug.SetGCPercent(defaultCollectorPercent)
				return
			case <-tick.C:
			}
			metrics.Read(heap)
			if p := collectorPercent(heap[0].Value.Uint64(), heap[1].Value.Uint64()); p != now {
				now = p
				debug.SetGCPercent(p)
			}
		}
	}))
}
