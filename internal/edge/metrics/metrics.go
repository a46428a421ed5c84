// Package metrics exports a node's metrics to Prometheus under RabbitMQ's names: totals
// over all objects, series for each object, and selected families. It also exports metrics
// that only Bartleby has, such as the outcomes of deaths.
//
// The server uses its handler. It owns no state: every scrape asks the broker. It never
// listens; the server does.
package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/office"
)

// Options are the sources of the metrics.
type Options struct {
	Broker         *broker.Broker
	Version        string // of the program
	ProductVersion string // the compatible version of RabbitMQ
	ClusterName    string
	Node           func() Node  // the resources of the process
	Jobs           *office.Jobs // those of the Dead Letter Office; nil: none
	Logger         *slog.Logger
	PerObject      bool // /metrics has series for each object, as /metrics/per-object
}

// Node has the resources of a process and their limits.
type Node struct {
	Resident    int64 // bytes of memory
	MemoryLimit int64 // bytes; 0: none
	DiskFree    int64 // bytes; negative: not known
	DiskLimit   int64 // bytes
	OpenFiles   int
	MaxFiles    int
}

// families lists all families by their names in /metrics/detailed.
var families = []*family{
	alarmFamily, nodeFamily, coarseFamily, persisterFamily, churnFamily, attemptFamily, totalsFamily, globalFamily, deathFamily,
	queueCoarseFamily, queueFamily, queueConsumerFamily, queueDeliveryFamily, channelQueueExchangeFamily, queueExchangeFamily, deadLetterFamily, jobFamily,
	connectionCoarseFamily, connectionFamily, channelFamily, channelProcessFamily, channelQueueFamily, channelExchangeFamily, exchangeFamily, delayedFamily, settleFamily,
	vhostFamily, bindingFamily, exchangeNameFamily,
}

// Handler serves /metrics, totals over all objects; /metrics/per-object, series for
// each queue, connection, channel and exchange; /metrics/detailed, the families
// and virtual hosts that the query names (BR-17.1); and /metrics/memory-breakdown. Few scrapes are made at once.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	total := expose(&scrape{Options: o, endpoint: "aggregated", prefix: usual, total: true, families: inEndpoint()})
	each := expose(&scrape{Options: o, endpoint: "per-object", prefix: usual, families: inEndpoint()})
	if o.PerObject {
		total = each
	}
	mux.Handle("GET /metrics", total)
	mux.Handle("GET /metrics/per-object", each)
	mux.Handle("GET /metrics/memory-breakdown", expose(&scrape{Options: o, endpoint: "memory-breakdown", prefix: usual, families: []*family{memoryFamily}}))
	mux.HandleFunc("GET /metrics/detailed", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		s := &scrape{Options: o, endpoint: "detailed", prefix: detailed, chosen: q["family"], vhosts: q["vhost"]}
		for _, f := range families {
			if s.isChosen(f) {
				s.families = append(s.families, f)
			}
		}
		expose(s).ServeHTTP(w, r)
	})
	return inTurn(mux, maxScrapes)
}

// inEndpoint are the families that are shown by default.
func inEndpoint() (list []*family) {
	for _, f := range families {
		if !f.onRequest {
			list = append(list, f)
		}
	}
	return list
}

func expose(s *scrape) http.Handler {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(s)
	// Two objects may have the same label (see label); the other series must still be
	// shown.
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}
