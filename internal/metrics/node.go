package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"bartleby.mq/internal/broker"
)

// nodeCollector shows the process and the counters that no queue keeps (BR-17.2, BR-17.4).
type nodeCollector struct{ Options }

var (
	buildInfo    = gauge("rabbitmq_build_info", "RabbitMQ & Erlang/OTP version info", "rabbitmq_version", "prometheus_plugin_version", "prometheus_client_version", "erlang_version", "product_name", "product_version")
	identityInfo = gauge("rabbitmq_identity_info", "RabbitMQ node & cluster identity info", "rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id")

	connections       = gauge("rabbitmq_connections", "Connections currently open")
	channels          = gauge("rabbitmq_channels", "Channels currently open")
	connectionsOpened = counter("rabbitmq_connections_opened_total", "Total number of connections opened")
	connectionsClosed = counter("rabbitmq_connections_closed_total", "Total number of connections closed or terminated")
	channelsOpened    = counter("rabbitmq_channels_opened_total", "Total number of channels opened")
	channelsClosed    = counter("rabbitmq_channels_closed_total", "Total number of channels closed")
	queuesDeclared    = counter("rabbitmq_queues_declared_total", "Total number of queues declared")
	queuesCreated     = counter("rabbitmq_queues_created_total", "Total number of queues created")
	queuesDeleted     = counter("rabbitmq_queues_deleted_total", "Total number of queues deleted")

	received          = counter("rabbitmq_global_messages_received_total", "Total number of messages received from publishers", "protocol")
	confirmed         = counter("rabbitmq_global_messages_confirmed_total", "Total number of messages confirmed to publishers", "protocol")
	unroutableDropped = counter("rabbitmq_global_messages_unroutable_dropped_total", "Total number of messages published as non-mandatory into an exchange and dropped as unroutable", "protocol")
	unroutableBack    = counter("rabbitmq_global_messages_unroutable_returned_total", "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable", "protocol")

	resident       = gauge("rabbitmq_process_resident_memory_bytes", "Memory used in bytes")
	residentLimit  = gauge("rabbitmq_resident_memory_limit_bytes", "Memory high watermark in bytes")
	openFDs        = gauge("rabbitmq_process_open_fds", "Open file descriptors")
	maxFDs         = gauge("rabbitmq_process_max_fds", "Open file descriptors limit")
	diskFree       = gauge("rabbitmq_disk_space_available_bytes", "Disk space available in bytes")
	diskFreeLimit  = gauge("rabbitmq_disk_space_available_limit_bytes", "Free disk space low watermark in bytes")
	memoryAlarm    = gauge("rabbitmq_alarms_memory_used_watermark", "is 1 if VM memory watermark alarm is in effect")
	diskAlarm      = gauge("rabbitmq_alarms_free_disk_space_watermark", "is 1 if free disk space watermark alarm is in effect")
	fileAlarm      = gauge("rabbitmq_alarms_file_descriptor_limit", "is 1 if file descriptor limit alarm is in effect")
	deathConfirmed = counter("rabbitmq_global_messages_dead_lettered_confirmed_total", "Total number of messages dead-lettered and confirmed by target queues", "queue_type", "dead_letter_strategy")
)

// protocol091 is the label of AMQP 0-9-1.
const protocol091 = "amqp091"

// Describe implements prometheus.Collector.
func (c nodeCollector) Describe(out chan<- *prometheus.Desc) {
	for _, s := range []series{
		buildInfo, identityInfo, connections, channels, connectionsOpened, connectionsClosed, channelsOpened, channelsClosed,
		queuesDeclared, queuesCreated, queuesDeleted, received, confirmed, unroutableDropped, unroutableBack,
		resident, residentLimit, openFDs, maxFDs, diskFree, diskFreeLimit, memoryAlarm, diskAlarm, fileAlarm,
	} {
		out <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c nodeCollector) Collect(out chan<- prometheus.Metric) {
	b, t := c.Broker, &c.Broker.Totals
	emit(out, buildInfo, 1, c.ProductVersion, c.Version, c.Version, runtime.Version(), "Bartleby", c.Version)
	emit(out, identityInfo, 1, b.NodeName, c.ClusterName, "")

	emit(out, connections, len(b.Connections()))
	emit(out, connectionsOpened, t.ConnectionsOpened.Load())
	emit(out, connectionsClosed, t.ConnectionsClosed.Load())
	closed := t.ChannelsClosed.Load() // before opened, so that the difference is not negative
	opened := t.ChannelsOpened.Load()
	emit(out, channels, opened-closed)
	emit(out, channelsOpened, opened)
	emit(out, channelsClosed, closed)
	emit(out, queuesDeclared, t.QueuesDeclared.Load())
	emit(out, queuesCreated, t.QueuesCreated.Load())
	emit(out, queuesDeleted, t.QueuesGone.Load())

	emit(out, received, t.Published.Load(), protocol091)
	emit(out, confirmed, t.Confirmed.Load(), protocol091)
	emit(out, unroutableDropped, t.UnroutableDropped.Load(), protocol091)
	emit(out, unroutableBack, t.UnroutableReturned.Load(), protocol091)

	n := c.Node()
	emit(out, resident, n.Resident)
	emit(out, residentLimit, n.MemoryLimit)
	emit(out, openFDs, n.OpenFiles)
	emit(out, maxFDs, n.MaxFiles)
	emit(out, diskFree, max(n.DiskFree, 0))
	emit(out, diskFreeLimit, n.DiskLimit)
	alarms := b.ActiveAlarms()
	emit(out, memoryAlarm, flag(alarms&broker.Memory != 0))
	emit(out, diskAlarm, flag(alarms&broker.Disk != 0))
	emit(out, fileAlarm, 0)
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}
