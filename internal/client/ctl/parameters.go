package ctl

import "net/http"

func parameterVerbs() []verb {
	jsonValue := column{"value", func(o object) any {
		text, err := encode(o["value"])
		if err != nil {
			return ""
		}
		return text
	}}
	cleared := func(err error) error {
		if is(err, http.StatusNotFound) {
			return fail(exitUnavailable, "Parameter does not exist")
		}
		return explain(err)
	}
	return []verb{
		{
			name: "set_parameter", short: "Sets a runtime parameter.", min: 3, max: 3, usage: "[--vhost <vhost>] <component_name> <name> <value>",
			run: func(i *invocation) error {
				i.say(`Setting runtime parameter "%s" for component "%s" to "%s" in vhost "%s" ...`, i.args[1], i.args[0], i.args[2], i.vhost)
				value, err := parseJSON(i.args[2])
				if err != nil {
					return err
				}
				return i.inVHost(i.put(path("parameters", i.args[0], i.vhost, i.args[1]), object{"value": value}))
			},
		},
		{
			name: "clear_parameter", short: "Clears a runtime parameter.", min: 2, max: 2, usage: "[--vhost <vhost>] <component_name> <name>",
			run: func(i *invocation) error {
				i.say(`Clearing runtime parameter "%s" for component "%s" on vhost "%s" ...`, i.args[1], i.args[0], i.vhost)
				return cleared(i.delete(path("parameters", i.args[0], i.vhost, i.args[1])))
			},
		},
		{
			name: "list_parameters", short: "Lists runtime parameters for a virtual host", max: 0, usage: "[--vhost <vhost>] [--no-table-headers]",
			run: func(i *invocation) error {
				var all, items []object
				if err := i.get("parameters", &all); err != nil {
					return explain(err)
				}
				for _, p := range all {
					if p["vhost"] == i.vhost && p["component"] != "policy" {
						items = append(items, p)
					}
				}
				return i.list(`Listing runtime parameters for vhost "`+i.vhost+`" ...`, append(fields("component", "name"), jsonValue), items)
			},
		},
		{
			name: "set_global_parameter", short: "Sets a runtime parameter.", min: 2, max: 2, usage: "<name> <value>",
			run: func(i *invocation) error {
				i.say(`Setting global runtime parameter "%s" to "%s" ...`, i.args[0], i.args[1])
				value, err := parseJSON(i.args[1])
				if err != nil {
					return err
				}
				return explain(i.put(path("global-parameters", i.args[0]), object{"value": value}))
			},
		},
		{
			name: "clear_global_parameter", short: "Clears a global runtime parameter", min: 1, max: 1, usage: "<name>",
			run: func(i *invocation) error {
				i.say(`Clearing global runtime parameter "%s" ...`, i.args[0])
				return cleared(i.delete(path("global-parameters", i.args[0])))
			},
		},
		{
			name: "list_global_parameters", short: "Lists global runtime parameters", max: 0, usage: "[--no-table-headers]",
			run: func(i *invocation) error {
				var items []object
				if err := i.get("global-parameters", &items); err != nil {
					return explain(err)
				}
				return i.list("Listing global runtime parameters ...", append(fields("name"), jsonValue), items)
			},
		},
	}
}
