package metrics

import (
	"runtime"
	"time"

	"bartleby.mq/internal/run/broker"
)

var (
	buildInfo    = untyped("build_info", "RabbitMQ & Erlang/OTP version info", "rabbitmq_version", "prometheus_plugin_version", "prometheus_client_version", "erlang_version")
	identityInfo = untyped("identity_info", "RabbitMQ node & cluster identity info", "rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id", "rabbitmq_endpoint")
)

// identity is the series that dashboards join with all others (BR-17.4).
func identity(s *scrape) {
	detailedPrefix := s.prefix
	s.prefix = usual
	s.put(buildInfo, 1, s.ProductVersion, s.Version, s.Version, runtime.Version())
	s.put(identityInfo, 1, s.Broker.NodeName, s.ClusterName, s.Broker.ClusterID(), s.endpoint)
	s.prefix = detailedPrefix
}

var (
	memoryAlarm = untyped("alarms_memory_used_watermark", "is 1 if VM memory watermark alarm is in effect")
	diskAlarm   = untyped("alarms_free_disk_space_watermark", "is 1 if free disk space watermark alarm is in effect")
	fileAlarm   = untyped("alarms_file_descriptor_limit", "is 1 if file descriptor limit alarm is in effect")
	unreachable = gauge("unreachable_cluster_peers_count", "Number of peers in the cluster the current node cannot reach.")
)

// alarmFamily has the alarm of RabbitMQ 4.0 on file descriptors too, for old dashboards (BR-17.4).
var alarmFamily = &family{collect: func(s *scrape) {
	alarms := s.Broker.ActiveAlarms()
	s.put(memoryAlarm, flag(alarms&broker.Memory != 0))
	s.put(diskAlarm, flag(alarms&broker.Disk != 0))
	s.put(fileAlarm, 0)
	s.put(unreachable, 0)
}}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

var (
	maxFDs        = gauge("process_max_fds", "Open file descriptors limit")
	residentLimit = gauge("resident_memory_limit_bytes", "Memory high watermark in bytes")
	diskFreeLimit = gauge("disk_space_available_limit_bytes", "Free disk space low watermark in bytes")
	processLimit  = gauge("erlang_processes_limit", "Erlang processes limit")
	runQueue      = gauge("erlang_scheduler_run_queue", "Erlang scheduler run queue")
	tickTime      = gauge("erlang_net_ticktime_seconds", "Inter-node heartbeat interval")
	uptime        = gauge("erlang_uptime_seconds", "Node uptime")
)

// nodeFamily has Erlang's names, which dashboards use for the node's uptime.
var nodeFamily = &family{name: "node_metrics", collect: func(s *scrape) {
	n := s.Node()
	s.put(maxFDs, float64(n.MaxFiles))
	s.put(residentLimit, float64(n.MemoryLimit))
	s.put(diskFreeLimit, float64(n.DiskLimit))
	s.put(processLimit, 1048576)
	s.put(runQueue, 0)
	s.put(tickTime, 60)
	s.put(uptime, s.Broker.Uptime().Seconds())
}}

var (
	openFDs      = gauge("process_open_fds", "Open file descriptors")
	resident     = gauge("process_resident_memory_bytes", "Memory used in bytes")
	diskFree     = gauge("disk_space_available_bytes", "Disk space available in bytes")
	processes    = gauge("erlang_processes_used", "Erlang processes used")
	collections  = counter("erlang_gc_runs_total", "Total number of Erlang garbage collector runs")
	reclaimed    = counter("erlang_gc_reclaimed_bytes_total", "Total number of bytes of memory reclaimed by Erlang garbage collector")
	contextSwaps = counter("erlang_scheduler_context_switches_total", "Total number of Erlang scheduler context switches")
)

// coarseFamily: processes are goroutines, and the collector is Go's.
var coarseFamily = &family{name: "node_coarse_metrics", collect: func(s *scrape) {
	n := s.Node()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.put(openFDs, float64(n.OpenFiles))
	s.put(resident, float64(n.Resident))
	s.put(diskFree, float64(max(n.DiskFree, 0)))
	s.put(processes, float64(runtime.NumGoroutine()))
	s.put(collections, float64(m.NumGC))
	s.put(reclaimed, float64(m.TotalAlloc-m.HeapAlloc))
	s.put(contextSwaps, 0)
}}

// persisterFamily are counters of RabbitMQ's storage that do not exist here. They are 0,
// because dashboards query them.
var persisterFamily = &family{name: "node_persister_metrics", collect: func(s *scrape) {
	for _, m := range persister {
		s.put(m, 0)
	}
}}

var persister = []*metric{
	counter("io_read_ops_total", "Total number of I/O read operations"),
	counter("io_read_bytes_total", "Total number of I/O bytes read"),
	counter("io_write_ops_total", "Total number of I/O write operations"),
	counter("io_write_bytes_total", "Total number of I/O bytes written"),
	counter("io_sync_ops_total", "Total number of I/O sync operations"),
	counter("io_seek_ops_total", "Total number of I/O seek operations"),
	counter("io_reopen_ops_total", "Total number of times files have been reopened"),
	counter("schema_db_ram_tx_total", "Total number of Schema DB memory transactions"),
	counter("schema_db_disk_tx_total", "Total number of Schema DB disk transactions"),
	counter("msg_store_read_total", "Total number of Message Store read operations"),
	counter("msg_store_write_total", "Total number of Message Store write operations"),
	counter("queue_index_read_ops_total", "Total number of Queue Index read operations"),
	counter("queue_index_write_ops_total", "Total number of Queue Index write operations"),
	counter("io_read_time_seconds_total", "Total I/O read time"),
	counter("io_write_time_seconds_total", "Total I/O write time"),
	counter("io_sync_time_seconds_total", "Total I/O sync time"),
	counter("io_seek_time_seconds_total", "Total I/O seek time"),
}

var (
	connectionsOpened = counter("connections_opened_total", "Total number of connections opened")
	connectionsClosed = counter("connections_closed_total", "Total number of connections closed or terminated")
	channelsOpened    = counter("channels_opened_total", "Total number of channels opened")
	channelsClosed    = counter("channels_closed_total", "Total number of channels closed")
	queuesDeclared    = counter("queues_declared_total", "Total number of queues declared")
	queuesCreated     = counter("queues_created_total", "Total number of queues created")
	queuesDeleted     = counter("queues_deleted_total", "Total number of queues deleted")
)

// churnFamily counts opened and closed, declared and deleted objects (BR-17.2).
var churnFamily = &family{name: "connection_churn_metrics", collect: func(s *scrape) {
	t := &s.Broker.Totals
	s.put(connectionsOpened, float64(t.ConnectionsOpened.Load()))
	s.put(connectionsClosed, float64(t.ConnectionsClosed.Load()))
	s.put(channelsOpened, float64(t.ChannelsOpened.Load()))
	s.put(channelsClosed, float64(t.ChannelsClosed.Load()))
	s.put(queuesDeclared, float64(t.QueuesDeclared.Load()))
	s.put(queuesCreated, float64(t.QueuesCreated.Load()))
	s.put(queuesDeleted, float64(t.QueuesGone.Load()))
}}

var (
	attempts       = counter("auth_attempts_total", "Total number of authentication attempts", "protocol")
	attemptsGood   = counter("auth_attempts_succeeded_total", "Total number of successful authentication attempts", "protocol")
	attemptsFailed = counter("auth_attempts_failed_total", "Total number of failed authentication attempts", "protocol")
)

var attemptFamily = &family{name: "auth_attempt_metrics", collect: func(s *scrape) {
	for p := range broker.LoginProtocols {
		l := &s.Broker.Totals.Logins[p]
		good, bad := float64(l.Succeeded.Load()), float64(l.Failed.Load())
		s.put(attempts, good+bad, p.String())
		s.put(attemptsGood, good, p.String())
		s.put(attemptsFailed, bad, p.String())
	}
}}

var (
	startTime   = gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.").whole()
	connections = gauge("connections", "Connections currently open")
	channels    = gauge("channels", "Channels currently open")
	consumers   = gauge("consumers", "Consumers currently connected")
	queueCount  = gauge("queues", "Queues available")
	senseless   = gauge("bartleby_senseless_frames", "Frames and commands of the journal that make no sense and were set aside since the start").whole()
	stranded    = gauge("bartleby_messages_stranded", "Messages that have left their queues for one that is gone, and wait for another").whole()
	asides      = counter("bartleby_messages_set_aside_total", "Messages that could not be read from disk, and were set aside").whole()
	asideFiles  = gauge("bartleby_set_aside_files", "Files of what was set aside, which an operator is to look at").whole()
	noticed     = counter("bartleby_notices_published_total", "Messages that the node itself has published to queues: copies of traced messages, and events", "kind").whole()
	unnoticed   = counter("bartleby_notices_dropped_total", "Messages that the node itself has dropped, since too many waited or an alarm was in force", "kind").whole()
	relocated   = counter("bartleby_messages_relocated_total", "Messages that waited for another queue, and were sent to one by an operator").whole()
)

// totalsFamily is the number of objects of each kind (BR-17.2).
var totalsFamily = &family{collect: func(s *scrape) {
	t := &s.Broker.Totals
	closed := t.ChannelsClosed.Load() // before opened, so that the difference is not negative
	all := s.survey()
	n := 0
	for i := range all {
		n += all[i].Counts.Consumers
	}
	s.put(startTime, float64(time.Now().Add(-s.Broker.Uptime()).Unix()))
	s.put(connections, float64(len(s.Broker.Connections())))
	s.put(channels, float64(t.ChannelsOpened.Load()-closed))
	s.put(consumers, float64(n))
	s.put(queueCount, float64(len(all)))
	_, n = s.Broker.Node().Senseless()
	s.put(senseless, float64(n))
	s.put(stranded, float64(s.Broker.Node().Stranded()))
	s.put(relocated, float64(s.Broker.Node().Relocated()))
	for _, n := range s.Broker.Notices() {
		s.put(noticed, float64(n.Published), n.Kind)
		s.put(unnoticed, float64(n.Dropped), n.Kind)
	}
	s.put(asides, float64(s.Broker.Node().SetAsides()))
	s.put(asideFiles, float64(s.Broker.FilesSetAside()))
}}
