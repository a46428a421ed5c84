package ctl

var bindingColumns = []column{
	{"source_name", func(o object) any { return o["source"] }},
	{"source_kind", func(object) any { return "exchange" }},
	{"destination_name", func(o object) any { return o["destination"] }},
	{"destination_kind", func(o object) any { return o["destination_type"] }},
	field("routing_key"),
	{"arguments", func(o object) any { return argumentsOf(o["arguments"]) }},
	field("vhost"),
}

func bindingVerbs() []verb {
	return []verb{{
		name: "list_bindings", short: "Lists all bindings on a vhost", max: -1, usage: "[--vhost <vhost>] [--no-table-headers] [<column> ...]",
		run: func(i *invocation) error {
			columns, err := chooseColumns(i.args, bindingColumns,
				"source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments")
			if err != nil {
				return err
			}
			var items []object
			if err := i.get(path("bindings", i.vhost), &items); err != nil {
				return i.inVHost(err)
			}
			return i.list("Listing bindings for vhost "+i.vhost+"...", columns, items)
		},
	}}
}
