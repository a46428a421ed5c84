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

// defaultMemory is used if the machine's memory is unknown, in bytes.
const defaultMemory = 4 << 30

// leastBudget is the smallest budget, in bytes, as in the configuration.
const leastBudget = 1 << 20

// storage divides the memory, unless the configuration does: an eighth for the index of queues, a sixteenth for messages,
// but at most a quarter and an eighth of the memory alarm's limit.
func (s *Server) storage() broker.Storage {
	c := s.Config.Storage
	total := cmp.Or(memoryOf(&s.Config), defaultMemory)
	index, cache := total/8, total/16
	if limit := s.Config.Memory.Limit(total); limit > 0 {
		index, cache = min(index, max(limit/4, leastBudget)), min(cache, max(limit/8, leastBudget))
	}
	return broker.Storage{
		IndexBudget: cmp.Or(c.IndexBudget, index), CacheBudget: cmp.Or(c.CacheBudget, cache),
		CheckpointBytes: c.CheckpointBytes, CheckpointOperations: c.CheckpointOperations, CheckpointEvery: c.CheckpointEvery,
	}
}

// LimitGoMemory makes Go's collector work harder if the heap is large, before the alarm is
// raised: at four fifths of the watermark, minus the memory of messages outside of its heap.
// It is for a process that is only a node. It does nothing if GOGC or GOMEMLIMIT is set.
func (s *Server) LimitGoMemory() {
	if os.Getenv("GOGC") == "" {
		s.tendCollector()
	}
	total := memoryOf(&s.Config)
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

// collectorPercent is how much garbage there may be, in percent of the live heap; scanned is how many
// live bytes the collector scans. If the heap is large because of messages, most of it is the index of
// queues, which needs little scanning: half of the memory for garbage would be a waste. If it is large
// because of queues and connections, scanning is expensive, and the collector may run less often.
func collectorPercent(live, scanned uint64) int {
	const garbage, least = 16 << 20, 8
	if live <= garbage {
		return defaultCollectorPercent
	}
	return int(max(defaultCollectorPercent*max(garbage, scanned)/live, least))
}

// tendCollector adapts the collector's pace to the live heap, until the node stops.
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
