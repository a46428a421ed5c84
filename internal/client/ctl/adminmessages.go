package ctl

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// adminMessageVerb is a verb of rabbitmqadmin about messages.
type adminMessageVerb struct {
	name, short string
	mandatory   string            // the key that must be given
	optional    map[string]string // keys and their defaults
	run         func(*invocation, map[string]string) error
}

var publishMessage = adminMessageVerb{
	name: "publish", short: "Publishes a message, given by KEY=VALUE", mandatory: "routing_key",
	optional: map[string]string{"exchange": "amq.default", "payload": "", "payload_encoding": "string", "properties": "{}"},
	run: func(i *invocation, given map[string]string) error {
		properties, err := jsonValue(given["properties"])
		if err != nil {
			return fail(exitUsage, "ERROR: Could not parse JSON:\n  %s", given["properties"])
		}
		var reply struct{ Routed bool }
		err = i.post(path("exchanges", i.vhost, given["exchange"], "publish"), object{
			"routing_key": given["routing_key"], "payload": given["payload"], "payload_encoding": given["payload_encoding"], "properties": properties,
		}, &reply)
		if err != nil {
			return explain(err)
		}
		if reply.Routed {
			i.say("Message published")
		} else {
			i.say("Message published but NOT routed")
		}
		return nil
	},
}

var getMessages = adminMessageVerb{
	name: "get", short: "Gets messages of a queue, given by KEY=VALUE", mandatory: "queue",
	optional: map[string]string{"count": "1", "ackmode": "ack_requeue_true", "encoding": "auto"},
	run: func(i *invocation, given map[string]string) error {
		count, err := strconv.Atoi(given["count"])
		if err != nil {
			return fail(exitUsage, "ERROR: count %q is not a number", given["count"])
		}
		var items []object
		err = i.post(path("queues", i.vhost, given["queue"], "get"), object{
			"count": count, "ackmode": given["ackmode"], "encoding": given["encoding"],
		}, &items)
		if err != nil {
			return explain(err)
		}
		if len(items) == 0 {
			i.say("No items")
			return nil
		}
		columns := fields("routing_key", "exchange", "message_count", "payload", "payload_bytes", "payload_encoding", "redelivered")
		rows := [][]string{names(columns)}
		for _, o := range items {
			row := make([]string, len(columns))
			for k, c := range columns {
				row[k] = pythonText(c.value(o))
			}
			rows = append(rows, row)
		}
		i.printPlainBox(rows)
		return nil
	},
}

// complete reads the arguments and adds the defaults.
func (v *adminMessageVerb) complete(args []string) (map[string]string, error) {
	given, err := keysAndValues(args)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if _, optional := v.optional[key]; !optional && key != v.mandatory {
			return nil, fail(exitUsage, "ERROR: Argument %q not recognised", key)
		}
	}
	if _, ok := given[v.mandatory]; !ok {
		return nil, fail(exitUsage, "ERROR: mandatory argument %q required", v.mandatory)
	}
	all := maps.Clone(v.optional)
	maps.Copy(all, given)
	return all, nil
}

// pythonText prints a value like rabbitmqadmin, which is written in Python.
func pythonText(v any) string {
	switch v {
	case true:
		return "True"
	case false:
		return "False"
	}
	return controls.Replace(sprint(v))
}

// printPlainBox frames a table as rabbitmqadmin does; the first row is its header.
func (i *invocation) printPlainBox(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for k, text := range row {
			widths[k] = max(widths[k], utf8.RuneCountInString(text))
		}
	}
	var line strings.Builder
	for _, w := range widths {
		line.WriteString("+" + strings.Repeat("-", w+2))
	}
	line.WriteString("+")
	for n, row := range rows {
		if n < 2 {
			i.print("%s", line.String())
		}
		var b strings.Builder
		for k, text := range row {
			left := 0
			if n == 0 {
				left = (widths[k] - utf8.RuneCountInString(text)) / 2
			}
			fmt.Fprintf(&b, "| %s%-*s ", strings.Repeat(" ", left), widths[k]-left, text)
		}
		i.print("%s|", b.String())
	}
	i.print("%s", line.String())
}
