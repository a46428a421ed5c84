package ctl

import "net/http"

var exchangeColumns = append(fields("name", "type", "durable", "auto_delete", "internal", "policy", "vhost", "messages_delayed"),
	column{"arguments", func(o object) any { return argumentsOf(o["arguments"]) }},
	column{"features", featuresOf})

func exchangeVerbs() []verb {
	return []verb{{
		name: "list_exchanges", short: "Lists exchanges", max: -1, usage: "[--vhost <vhost>] [--no-table-headers] [<column>, ...]",
		run: func(i *invocation) error {
			columns, err := chooseColumns(i.args, exchangeColumns, "name", "type")
			if err != nil {
				return err
			}
			var items []object
			if err := i.get(path("exchanges", i.vhost), &items); err != nil {
				return i.inVHost(err)
			}
			return i.list("Listing exchanges for vhost "+i.vhost+" ...", columns, items)
		},
	}, {
		name: "purge_exchange", short: "Drops the messages that wait in an x-delayed-message exchange", min: 1, max: 1,
		usage: "[--vhost <vhost>] <exchange>",
		run: func(i *invocation) error {
			i.say("Purging exchange '%s' in vhost '%s' ...", i.args[0], i.vhost)
			err := i.delete(path("exchanges", i.vhost, i.args[0], "contents"))
			if is(err, http.StatusNotFound) {
				return failPlainly(exitData, "Object (queue, stream, exchange, etc) was not found")
			}
			return explain(err)
		},
	}}
}
