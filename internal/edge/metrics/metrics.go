// Package metrics shows a node to Prometheus by RabbitMQ's names: totals over all
// objects, series for each object, and families of them by choice; and what only
// Bartleby knows, which is what became of the dead.
//
// It owns no state: every scrape asks the broker. It does not listen; the server does.
package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"bartleby.mq/internal/run/broker"
)

// Options say what is shown.
type Options struct {
	Broker         *broker.Broker
	Version        string // of the program
	ProductVersion string // the RabbitMQ version that clients are told
	ClusterName    string
	Node           func() Node // what the process uses
	Logger         *slog.Logger
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

// families are all that there are, by the name that /metrics/detailed knows them by.
var families = []*family{
	alarmFamily, nodeFamily, coarseFamily, persisterFamily, churnFamily, attemptFamily, totalsFamily, globalFamily, deathFamily,
	queueCoarseFamily, queueFamily, queueConsumerFamily, queueDeliveryFamily, queueExchangeFamily, deadLetterFamily,
	connectionCoarseFamily, connectionFamily, channelFamily, channelProcessFamily, channelQueueFamily, channelExchangeFamily, exchangeFamily,
	vhostFamily, bindingFamily, exchangeNameFamily,
}

// Handler serves /metrics, totals over all objects; /metrics/per-object, series for
// each queue, connection, channel and exchange; and /metrics/detailed, the families
// and virtual hosts that the query names (BR-17.1). Few scrapes are made at once.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", expose(&scrape{Options: o, endpoint: "aggregated", prefix: usual, total: true, families: inEndpoint(false)}))
	mux.Handle("GET /metrics/per-object", expose(&scrape{Options: o, endpoint: "per-object", prefix: usual, families: inEndpoint(true)}))
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

// inEndpoint are the families that are shown without being asked for.
func inEndpoint(perObject bool) (list []*family) {
	for _, f := range families {
		if !f.onRequest && (!f.totalsOnly || !perObject) {
			list = append(list, f)
		}
	}
	return list
}

func expose(s *scrape) http.Handler {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(s)
	// Two objects may come to be shown by one name (see label); the rest is to be seen
	// all the same.
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}
