// Package metrics shows a node to Prometheus: the totals of RabbitMQ's endpoint by
// RabbitMQ's names, the counters of dead letters, and what each queue holds.
//
// It owns no state: every scrape asks the broker. It does not listen; the server does.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"bartleby.mq/internal/broker"
)

// Options say what is shown.
type Options struct {
	Broker         *broker.Broker
	Version        string // of the program
	ProductVersion string // the RabbitMQ version that clients are told
	ClusterName    string
	Node           func() Node // what the process uses
}

// Node is what a process uses and may use.
type Node struct {
	Resident    int64 // bytes of memory
	MemoryLimit int64 // bytes; 0: none
	DiskFree    int64 // bytes; negative: not known
	DiskLimit   int64 // bytes
	OpenFiles   int
	MaxFiles    int
}

// Handler serves /metrics, totals over all objects, and /metrics/per-object, a
// series for each queue (BR-17.1).
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", expose(nodeCollector{o}, deathCollector{o.Broker}, totalCollector{o.Broker}))
	mux.Handle("GET /metrics/per-object", expose(nodeCollector{o}, deathCollector{o.Broker}, queueCollector{o.Broker}))
	return mux
}

func expose(collectors ...prometheus.Collector) http.Handler {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collectors...)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// series is a metric of one kind: its description and its type.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) series {
	return series{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) series {
	return series{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// emit sends one value. Label values that are no UTF-8 are an error of the scrape
// in the library, not a panic: const metrics check them.
func emit[N int | int64 | uint64](out chan<- prometheus.Metric, s series, value N, labels ...string) {
	m, err := prometheus.NewConstMetric(s.desc, s.kind, float64(value), labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(s.desc, err)
	}
	out <- m
}
