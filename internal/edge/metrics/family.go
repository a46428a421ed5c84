package metrics

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
)

// metric is one series, or one for each set of label values.
type metric struct {
	name, help string // name is without the prefix, unless own is set
	kind       prometheus.ValueType
	labels     []string
	own        bool // the name is whole: ours, or the cluster's
	single     bool // it cannot be summed: there is no total
}

func gauge(name, help string, labels ...string) *metric {
	return &metric{name: name, help: help, kind: prometheus.GaugeValue, labels: labels}
}

func counter(name, help string, labels ...string) *metric {
	return &metric{name: name, help: help, kind: prometheus.CounterValue, labels: labels}
}

func untyped(name, help string, labels ...string) *metric {
	return &metric{name: name, help: help, kind: prometheus.UntypedValue, labels: labels}
}

// whole marks a name that needs no prefix.
func (m *metric) whole() *metric {
	m.own = true
	return m
}

// alone marks a metric without a total.
func (m *metric) alone() *metric {
	m.single = true
	return m
}

// family is a group of metrics. With objects set, labels distinguish the objects, and a
// total sums them.
type family struct {
	name      string
	metrics   []*metric
	objects   bool
	onRequest bool // only /metrics/detailed has it
	collect   func(s *scrape)
}

// The prefixes of names.
const (
	usual    = "rabbitmq_"
	detailed = "rabbitmq_detailed_"
)

// scrape is a prometheus.Collector for one endpoint. While it collects it belongs to
// one goroutine: see Collect.
type scrape struct {
	Options
	endpoint string
	prefix   string
	total    bool // add objects up
	families []*family
	chosen   []string // by the query
	vhosts   []string // of the query; none: all

	all      []broker.CountedQueue // once surveyed is set
	surveyed bool

	byChannel, byExchange []broker.Passage // once passed is set
	passed                bool

	out   chan<- prometheus.Metric
	in    *family
	sums  map[*metric]float64
	taken map[string]bool // series that an earlier family has shown
}

func (s *scrape) isChosen(f *family) bool { return f.name != "" && slices.Contains(s.chosen, f.name) }

// sees says whether the query includes a virtual host.
func (s *scrape) sees(v message.VHost) bool {
	return len(s.vhosts) == 0 || slices.Contains(s.vhosts, string(v))
}

// Describe implements prometheus.Collector. It describes nothing: the series are known only
// when they are collected.
func (s *scrape) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(out chan<- prometheus.Metric) {
	defer bug.End(s.Logger, "a look at the metrics") // the registry runs it in a goroutine of its own
	c := *s                                          // of its own, since scrapes may overlap
	c.out, c.taken = out, map[string]bool{}
	identity(&c)
	for _, f := range c.families {
		c.in, c.sums = f, map[*metric]float64{}
		f.collect(&c)
		if f.objects && c.total {
			c.flush()
		}
	}
}

// put shows a value, or adds it to the total.
func (s *scrape) put(m *metric, value float64, labels ...string) {
	if s.in != nil && s.in.objects && s.total {
		s.sums[m] += value
		return
	}
	s.show(m, value, m.labels, labels)
}

// flush shows the totals of a family, also for metrics without objects.
func (s *scrape) flush() {
	for _, m := range s.in.metrics {
		if !m.single {
			s.show(m, s.sums[m], nil, nil)
		}
	}
}

// show sends one value.
func (s *scrape) show(m *metric, value float64, names, labels []string) {
	name := m.name
	if !m.own {
		name = s.prefix + name
	}
	if s.repeated(name, labels) {
		return
	}
	desc := prometheus.NewDesc(name, m.help, names, nil)
	for i := range labels {
		labels[i] = label(labels[i])
	}
	v, err := prometheus.NewConstMetric(desc, m.kind, value, labels...)
	if err != nil {
		v = prometheus.NewInvalidMetric(desc, err)
	}
	s.out <- v
}

// label turns a name into a label's value, which must be UTF-8; names of AMQP need not be.
// Invalid bytes become \xHH, as in Go.
func label(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, name[0])
		} else {
			b.WriteString(name[:size])
		}
		name = name[size:]
	}
	return b.String()
}

// repeated says whether another family has already shown the series: some families share
// one, such as queue_info. Series of metrics in only one family are not recorded.
func (s *scrape) repeated(name string, labels []string) bool {
	if !shared[name] && !shared[trimDetailed(name)] {
		return false
	}
	key := name
	for _, l := range labels {
		key += "\x00" + l
	}
	if s.taken[key] {
		return true
	}
	s.taken[key] = true
	return false
}

// shared are the metrics that several families have.
var shared = map[string]bool{"rabbitmq_queue_info": true, "rabbitmq_queue_consumers": true}

func trimDetailed(name string) string {
	if rest, ok := strings.CutPrefix(name, detailed); ok {
		return usual + rest
	}
	return name
}
