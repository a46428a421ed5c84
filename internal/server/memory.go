package server

import (
	"cmp"
	"os"
	"runtime/debug"

	"bartleby.mq/internal/broker"
)

// defaultMemory is taken for the machine's where it is not known, in bytes.
const defaultMemory = 4 << 30

// storage divides the memory there is: an eighth for the index of queues, a
// sixteenth for messages, unless the configuration says otherwise.
func (s *Server) storage() broker.Storage {
	c := s.Config.Storage
	total := cmp.Or(totalMemory(), defaultMemory)
	return broker.Storage{
		IndexBudget: cmp.Or(c.IndexBudget, total/8), CacheBudget: cmp.Or(c.CacheBudget, total/16),
		CheckpointBytes: c.CheckpointBytes, CheckpointEvery: c.CheckpointEvery,
	}
}

// LimitGoMemory makes Go's collector work harder before the alarm has to be
// raised: at four fifths of the watermark, less what messages take outside of its
// heap. It is for a process that is a node and nothing else. Whoever sets GOMEMLIMIT
// knows better.
func (s *Server) LimitGoMemory() {
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
