package api

import (
	"os"
	"runtime"
	"strconv"

	"bartleby.mq/internal/broker"
)

func (s *server) listNodes(*request) (any, error) {
	return objects([]map[string]any{s.showNode()}), nil
}

func (s *server) getNode(r *request) (any, error) {
	if r.params["node"] != s.NodeName {
		return nil, notFound
	}
	return s.showNode(), nil
}

func (s *server) showNode() map[string]any {
	var limits NodeLimits
	if s.Limits != nil {
		limits = s.Limits()
	}
	mechanism := func(name, description string) map[string]any {
		return map[string]any{"name": name, "description": description, "enabled": true}
	}
	return map[string]any{
		"name": s.NodeName, "type": "disc", "running": true, "being_drained": false, "partitions": []any{},
		"os_pid": strconv.Itoa(os.Getpid()), "uptime": s.b.Uptime().Milliseconds(), "processors": runtime.GOMAXPROCS(0),
		"run_queue": 0, "rates_mode": "basic", "net_ticktime": 60,
		"mem_used": limits.MemoryUsed, "mem_limit": limits.MemoryLimit, "mem_alarm": s.b.ActiveAlarms()&broker.Memory != 0,
		"disk_free": limits.DiskFree, "disk_free_limit": limits.DiskFreeLimit, "disk_free_alarm": s.b.ActiveAlarms()&broker.Disk != 0,
		"fd_used": limits.FilesUsed, "fd_total": limits.FilesLimit, "sockets_used": limits.Sockets, "sockets_total": limits.FilesLimit,
		"proc_used": runtime.NumGoroutine(), "proc_total": 1048576, "mem_calculation_strategy": "rss",
		"exchange_types": exchangeTypes,
		"auth_mechanisms": []any{
			mechanism("PLAIN", "SASL PLAIN authentication mechanism"), mechanism("AMQPLAIN", "QPid AMQPLAIN mechanism"),
		},
		"applications": []any{}, "contexts": s.showContexts(), "log_files": []string{}, "db_dir": s.b.Dir,
		"config_files": []string{}, "enabled_plugins": []string{"rabbitmq_management", "rabbitmq_prometheus"}, "cluster_links": []any{},
		"metrics_gc_queue_length": map[string]any{},
	}
}
