package api

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"bartleby.mq/internal/run/broker"
)

func (s *server) listNodes(r *request) (any, error) {
	return objects([]map[string]any{r.showNode()}), nil
}

func (s *server) getNode(r *request) (any, error) {
	if err := r.mustNode(); err != nil {
		return nil, err
	}
	object := r.showNode()
	if r.flag("memory") {
		object["memory"] = s.memory()
	}
	if r.flag("binary") {
		object["binary"] = binaryMemory()
	}
	return object, nil
}

// mustNode refuses every name but this node's.
func (r *request) mustNode() error {
	if r.params["node"] != r.s.NodeName {
		return notFound
	}
	return nil
}

// erlangCounters are figures of RabbitMQ's virtual machine and storage that do not
// exist here. They are 0, because tools expect them.
var erlangCounters = []string{
	"context_switches", "gc_num", "gc_bytes_reclaimed", "io_read_avg_time", "io_read_bytes", "io_read_count", "io_reopen_count",
	"io_seek_avg_time", "io_seek_count", "io_sync_avg_time", "io_sync_count", "io_write_avg_time", "io_write_bytes", "io_write_count",
	"mnesia_disk_tx_count", "mnesia_ram_tx_count", "msg_store_read_count", "msg_store_write_count", "queue_index_read_count",
	"queue_index_write_count",
}

func (r *request) showNode() map[string]any {
	s := r.s
	limits := s.limits()
	mechanism := func(name, description string) map[string]any {
		return map[string]any{"name": name, "description": description, "enabled": true}
	}
	object := map[string]any{
		"name": s.NodeName, "type": "disc", "running": true, "being_drained": false, "partitions": []any{},
		"os_pid": strconv.Itoa(os.Getpid()), "uptime": s.b.Uptime().Milliseconds(), "processors": min(runtime.NumCPU(), runtime.GOMAXPROCS(0)),
		"run_queue": 0, "rates_mode": "basic", "net_ticktime": 60,
		"mem_limit": limits.MemoryLimit, "mem_alarm": s.b.ActiveAlarms()&broker.Memory != 0,
		"disk_free_limit": limits.DiskFreeLimit, "disk_free_alarm": s.b.ActiveAlarms()&broker.Disk != 0,
		"fd_total": limits.FilesLimit, "sockets_total": limits.FilesLimit,
		"proc_total": 1048576, "mem_calculation_strategy": "rss",
		"rabbitmq_version": s.Version, "erlang_version": erlangVersion, "erlang_full_version": erlangFullVersion(),
		"crypto_lib_version": cryptoLibrary, "exchange_types": s.exchangeTypes(),
		"auth_mechanisms": []any{
			mechanism("PLAIN", "SASL PLAIN authentication mechanism"), mechanism("AMQPLAIN", "QPid AMQPLAIN mechanism"),
		},
		"applications": []any{map[string]any{"name": "rabbit", "description": s.Product, "version": s.Version}},
		"contexts":     s.showContexts(false), "log_files": []string{"<stderr>"}, "db_dir": s.b.Dir,
		"config_files": []string{}, "enabled_plugins": s.plugins(), "cluster_links": []any{},
		"ra_open_file_metrics": map[string]any{"ra_log_wal": 0, "ra_log_segment_writer": 0},
		"metrics_gc_queue_length": map[string]any{
			"connection_closed": 0, "channel_closed": 0, "consumer_deleted": 0, "exchange_deleted": 0, "queue_deleted": 0,
			"vhost_deleted": 0, "node_node_deleted": 0, "channel_consumer_deleted": 0,
		},
	}
	values := s.churn()
	for _, name := range erlangCounters {
		values[name] = 0
	}
	values["mem_used"], values["disk_free"] = float64(limits.MemoryUsed), float64(limits.DiskFree)
	values["fd_used"], values["sockets_used"] = float64(limits.FilesUsed), float64(limits.Sockets)
	values["proc_used"] = float64(runtime.NumGoroutine())
	s.history.put(object, "node", r.span(nodeSpan), values)
	for _, name := range []string{"io_read_avg_time", "io_seek_avg_time", "io_sync_avg_time", "io_write_avg_time"} {
		object[name] = decimal(0)
	}
	if !s.b.Strict {
		object["clock_ahead"] = s.b.ClockAhead().Milliseconds() // of the queues' clock before the system's
	}
	return r.brief("node", object)
}

// plugins lists RabbitMQ's plugins whose features exist here.
func (s *server) plugins() []string {
	if s.b.Strict {
		return bundledPlugins
	}
	return slices.Insert(slices.Clone(bundledPlugins), 1, "rabbitmq_delayed_message_exchange")
}

// bundledPlugins are those that come with RabbitMQ.
var bundledPlugins = []string{
	"rabbitmq_consistent_hash_exchange", "rabbitmq_management", "rabbitmq_management_agent", "rabbitmq_prometheus",
	"rabbitmq_shovel", "rabbitmq_shovel_management", "rabbitmq_web_dispatch",
}

func (s *server) limits() NodeLimits {
	if s.Limits == nil {
		return NodeLimits{}
	}
	return s.Limits()
}

// effectiveConfig is the configuration in force: lines of a configuration file, where
// RabbitMQ has Erlang terms.
func (s *server) effectiveConfig(*request) (any, error) {
	if s.Settings == nil {
		return nil, notFound
	}
	return plainText(strings.Join(s.Settings(), "\n") + "\n"), nil
}
