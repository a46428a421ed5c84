package ctl

var exchangeColumns = append(fields("name", "type", "durable", "auto_delete", "internal", "policy", "vhost"),
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
	}}
}
