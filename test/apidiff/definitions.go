package apidiff

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// definitionsFile is what RabbitMQ exports of the topology.
const definitionsFile = "testdata/definitions-4.3.json"

// sections are the lists of definitions.
var sections = []string{
	"users", "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters", "policies", "queues", "exchanges", "bindings",
}

// definitions are the objects of an export by section, those of the topology only,
// each as canonical JSON, sorted.
type definitions map[string][]string

// parseDefinitions leaves out what other users of the node have, and the names and
// versions at the head.
func parseDefinitions(text []byte) (definitions, error) {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%w: %.200s", err, text)
	}
	d := definitions{}
	for _, section := range sections {
		var objects []map[string]any
		if err := json.Unmarshal(doc[section], &objects); err != nil {
			return nil, fmt.Errorf("%s: %w", section, err)
		}
		for _, o := range objects {
			if !isBuilt(o) {
				continue
			}
			line, err := json.Marshal(o) // keys in order
			if err != nil {
				return nil, err
			}
			d[section] = append(d[section], string(line))
		}
		slices.Sort(d[section])
	}
	return d, nil
}

// isBuilt says whether an object is of the topology.
func isBuilt(o map[string]any) bool {
	if v, ok := o["vhost"]; ok {
		return v == vhost
	}
	return o["name"] == vhost
}

// text is a file that can be imported.
func (d definitions) text() []byte {
	var b strings.Builder
	b.WriteString("{\n\"rabbitmq_version\": \"4.3.6\"")
	for _, section := range sections {
		fmt.Fprintf(&b, ",\n%q: [\n  %s\n]", section, strings.Join(d[section], ",\n  "))
	}
	b.WriteString("\n}\n")
	return []byte(b.String())
}

// differences lists what only one of two has.
func (d definitions) differences(other definitions) (list []string) {
	for _, section := range slices.Sorted(maps.Keys(d)) {
		for _, o := range d[section] {
			if !slices.Contains(other[section], o) {
				list = append(list, section+": -"+o)
			}
		}
	}
	for _, section := range slices.Sorted(maps.Keys(other)) {
		for _, o := range other[section] {
			if !slices.Contains(d[section], o) {
				list = append(list, section+": +"+o)
			}
		}
	}
	return list
}

func (t target) exportDefinitions() (definitions, error) {
	a, err := t.do("GET", "definitions", "")
	if err != nil {
		return nil, err
	}
	return parseDefinitions(a.body)
}

func (t target) importDefinitions(text []byte) error {
	a, err := t.do("POST", "definitions", string(text))
	if err == nil && a.status != http.StatusNoContent {
		err = fmt.Errorf("import: %d %s", a.status, a.body)
	}
	return err
}
