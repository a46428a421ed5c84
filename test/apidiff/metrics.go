package apidiff

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// metricPages are what is read of the metrics listener. The families are those of
// BR-17.1 and a few that dashboards use.
var metricPages = strings.Fields(`
metrics
metrics/per-object
metrics/detailed
metrics/detailed?family=queue_coarse_metrics&vhost=apidiff
metrics/detailed?family=queue_metrics
metrics/detailed?family=queue_consumer_count
metrics/detailed?family=queue_delivery_metrics
metrics/detailed?family=connection_coarse_metrics
metrics/detailed?family=connection_metrics
metrics/detailed?family=channel_metrics
metrics/detailed?family=channel_process_metrics
metrics/detailed?family=exchange_metrics
metrics/detailed?family=vhost_status
metrics/detailed?family=exchange_bindings
metrics/detailed?family=exchange_names
metrics/detailed?family=node_metrics
metrics/detailed?family=node_coarse_metrics
metrics/detailed?family=node_persister_metrics
metrics/detailed?family=connection_churn_metrics
metrics/detailed?family=auth_attempt_metrics
`)

var (
	series    = regexp.MustCompile(`^([a-zA-Z0-9_]+)(?:\{(.*)\})? `)
	labelName = regexp.MustCompile(`([a-zA-Z0-9_]+)="`)
)

// metricLines are the metrics of a page with their types and the names of their
// labels, "rabbitmq_queue_messages{vhost,queue} gauge", sorted, and their help texts.
func metricLines(text []byte) []string {
	kinds, helps, lines := map[string]string{}, map[string]string{}, map[string]bool{}
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" {
			kinds[f[2]] = f[3]
			continue
		}
		if help, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, _, _ := strings.Cut(help, " ")
			helps[name] = "# " + help
			continue
		}
		m := series.FindStringSubmatch(line)
		if m == nil || !strings.HasPrefix(m[1], "rabbitmq_") {
			continue
		}
		var labels []string
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		if help, ok := helps[m[1]]; ok { // RabbitMQ has help for metrics without series too
			lines[help] = true
		}
		lines[fmt.Sprintf("%s{%s} %s", m[1], strings.Join(labels, ","), kinds[m[1]])] = true
	}
	return slices.Sorted(maps.Keys(lines))
}

// metricShapes reads every page.
func (t target) metricShapes() (map[string][]string, error) {
	shapes := map[string][]string{}
	for _, page := range metricPages {
		a, err := get(t.metrics + "/" + page)
		if err != nil {
			return nil, err
		}
		shapes[page] = append([]string{fmt.Sprint(a.status)}, metricLines(a.body)...)
	}
	return shapes, nil
}
