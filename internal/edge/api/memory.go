package api

import "runtime"

// memoryParts are the parts into which RabbitMQ divides its memory. Here only a few are
// not 0.
var memoryParts = []string{
	"connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs", "stream_queue_procs",
	"stream_queue_replica_reader_procs", "stream_queue_coordinator_procs", "quorum_queue_procs", "quorum_queue_dlx_procs", "plugins",
	"metadata_store", "other_proc", "metrics", "mgmt_db", "quorum_ets", "mnesia", "metadata_store_ets", "other_ets", "binary",
	"msg_index", "code", "atom", "other_system", "allocated_unused", "reserved_unallocated",
}

// binaryParts are the parts for ?binary=true.
var binaryParts = []string{
	"connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs", "stream_queue_procs",
	"stream_queue_replica_reader_procs", "stream_queue_coordinator_procs", "quorum_queue_procs", "quorum_queue_dlx_procs", "plugins",
	"metadata_store", "mgmt_db", "msg_index", "other",
}

// memory is the memory of the process, in bytes, under RabbitMQ's names: message bodies
// and indexes as queue_procs, the rest of the heap as other_proc.
func (s *server) memory() map[string]any {
	parts, total, allocated, rss := s.memoryUse()
	shown := map[string]any{"strategy": "rss", "total": map[string]any{"erlang": total, "rss": rss, "allocated": allocated}}
	for _, name := range memoryParts {
		shown[name] = parts[name]
	}
	return shown
}

func (s *server) memoryUse() (parts map[string]int64, total, allocated, rss int64) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	parts = map[string]int64{
		"other_proc": int64(m.HeapInuse), "other_system": int64(m.StackInuse + m.GCSys + m.OtherSys + m.MSpanInuse + m.MCacheInuse),
		"allocated_unused": int64(m.HeapIdle - m.HeapReleased),
	}
	return parts, parts["other_proc"] + parts["other_system"], int64(m.Sys), s.limits().MemoryUsed
}

func binaryMemory() map[string]any {
	shown := map[string]any{}
	for _, name := range binaryParts {
		shown[name] = 0
	}
	return shown
}

func (s *server) getNodeMemory(r *request) (any, error) {
	if err := r.mustNode(); err != nil {
		return nil, err
	}
	return map[string]any{"memory": s.memory()}, nil
}

// getNodeMemoryRelative has percent instead of bytes.
func (s *server) getNodeMemoryRelative(r *request) (any, error) {
	if err := r.mustNode(); err != nil {
		return nil, err
	}
	parts, _, allocated, _ := s.memoryUse()
	shown := map[string]any{"total": 100}
	for _, name := range memoryParts {
		shown[name] = parts[name] * 100 / max(allocated, 1)
	}
	return map[string]any{"memory": shown}, nil
}

// getNodeTables: there are no ETS tables here.
func (s *server) getNodeTables(r *request) (any, error) {
	if err := r.mustNode(); err != nil {
		return nil, err
	}
	return map[string]any{"ets_tables_memory": map[string]any{"total": 0}}, nil
}
