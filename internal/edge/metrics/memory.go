package metrics

import "runtime"

// memoryMetric is a part of the process's memory. RabbitMQ's names are parts of Erlang's; those that Go has no like of are 0.
type memoryMetric struct {
	*metric
	of func(*runtime.MemStats) uint64 // bytes
}

func noMemory(*runtime.MemStats) uint64 { return 0 }

var memoryMetrics = []memoryMetric{
	{gauge("memory_code_module_bytes", "Code module memory footprint"), noMemory},
	{gauge("memory_client_connection_reader_bytes", "Client connection reader processes footprint in bytes"), noMemory},
	{gauge("memory_client_connection_writer_bytes", "Client connection writer processes footprint in bytes"), noMemory},
	{gauge("memory_client_connection_channel_bytes", "Client connection channel processes footprint in bytes"), noMemory},
	{gauge("memory_client_connection_other_bytes", "Client connection other processes footprint in bytes"), noMemory},
	{gauge("memory_classic_queue_erlang_process_bytes", "Classic queue processes footprint in bytes"), noMemory},
	{gauge("memory_quorum_queue_erlang_process_bytes", "Quorum queue processes footprint in bytes"), noMemory},
	{gauge("memory_quorum_queue_dlx_erlang_process_bytes", "Quorum queue DLX worker processes footprint in bytes"), noMemory},
	{gauge("memory_stream_erlang_process_bytes", "Stream processes footprint in bytes"), noMemory},
	{gauge("memory_stream_replica_reader_erlang_process_bytes", "Stream replica reader processes footprint in bytes"), noMemory},
	{gauge("memory_stream_coordinator_erlang_process_bytes", "Stream coordinator processes footprint in bytes"), noMemory},
	{gauge("memory_plugin_bytes", "Total plugin footprint in bytes"), noMemory},
	{gauge("memory_modern_metadata_store_bytes", "Modern metadata store footprint in bytes"), noMemory},
	{gauge("memory_other_erlang_process_bytes", "Other processes footprint in bytes"), func(m *runtime.MemStats) uint64 { return m.HeapInuse }},
	{gauge("memory_metrics_bytes", "Metric table footprint in bytes"), noMemory},
	{gauge("memory_management_stats_db_bytes", "Management stats database footprint in bytes"), noMemory},
	{gauge("memory_classic_metadata_store_bytes", "Classic metadata store footprint in bytes"), noMemory},
	{gauge("memory_quorum_queue_ets_table_bytes", "Quorum queue ETS tables footprint in bytes"), noMemory},
	{gauge("memory_modern_metadata_store_ets_table_bytes", "Modern metadata store ETS tables footprint in bytes"), noMemory},
	{gauge("memory_other_ets_table_bytes", "Other ETS tables footprint in bytes"), noMemory},
	{gauge("memory_binary_heap_bytes", "Binary heap size in bytes"), noMemory},
	{gauge("memory_message_index_bytes", "Message index footprint in bytes"), noMemory},
	{gauge("memory_atom_table_bytes", "Atom table size in bytes"), noMemory},
	{gauge("memory_other_system_bytes", "Other runtime footprint in bytes"), func(m *runtime.MemStats) uint64 {
		return m.StackInuse + m.MSpanInuse + m.MCacheInuse + m.BuckHashSys + m.GCSys + m.OtherSys
	}},
	{gauge("memory_runtime_allocated_unused_bytes", "Runtime allocated but unused blocks size in bytes"), func(m *runtime.MemStats) uint64 { return m.HeapIdle - m.HeapReleased }},
	{gauge("memory_runtime_reserved_unallocated_bytes", "Runtime reserved but unallocated blocks size in bytes"), noMemory},
}

// memoryFamily is what /metrics/memory-breakdown has.
var memoryFamily = &family{collect: func(s *scrape) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	for _, part := range memoryMetrics {
		s.put(part.metric, float64(part.of(&m)))
	}
}}
