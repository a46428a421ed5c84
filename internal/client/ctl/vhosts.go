package ctl

import (
	"net/http"

	"github.com/spf13/pflag"
)

var vhostColumns = append(fields("name", "tracing", "description", "default_queue_type", "protected_from_deletion", "cluster_state", "metadata", "profile", "default_dead_letter", "lenient_declarations"),
	column{"tags", func(o object) any { return tagsOf(o["tags"]) }})

func vhostVerbs() []verb {
	protect := func(name, short string, change func(*invocation, string) error) verb {
		return verb{name: name, short: short, min: 1, max: 1, usage: "<vhost>", run: func(i *invocation) error {
			err := change(i, path("vhosts", i.args[0], "deletion", "protection"))
			if is(err, http.StatusNotFound) || is(err, http.StatusBadRequest) {
				return noVHost(i.args[0])
			}
			return explain(err)
		}}
	}
	return []verb{
		addVHost(), deleteVHost(), listVHosts(),
		protect("enable_vhost_deletion_protection", "Protects a virtual host from deletion (until the protection is removed)",
			func(i *invocation, at string) error { return i.post(at, nil, nil) }),
		protect("disable_vhost_deletion_protection", "Removes deletion protection from a virtual host (so that it can be deleted)",
			func(i *invocation, at string) error { return i.delete(at) }),
		trace("trace_on", true, "Starts tracing: copies of what is published and delivered go to the exchange amq.rabbitmq.trace", "Starting", "enabled"),
		trace("trace_off", false, "Stops tracing", "Stopping", "disabled"),
	}
}

func trace(name string, on bool, short, doing, done string) verb {
	return verb{name: name, short: short, max: 0, usage: "[--vhost <vhost>]", run: func(i *invocation) error {
		i.say(`%s tracing for vhost "%s" ...`, doing, i.vhost)
		if err := i.changeVHost(i.vhost, object{"tracing": on}); err != nil {
			return err
		}
		i.print("Trace %s for vhost %s", done, i.vhost)
		return nil
	}}
}

func addVHost() verb {
	var m vhostMetadata
	var profile string
	return verb{
		name: "add_vhost", short: "Creates a virtual host", min: 1, max: 1,
		usage: "<vhost> [--description <description> --tags \"<tag1>,<tag2>,<...>\" --default-queue-type <quorum|classic|stream> --default-dead-letter <queue> --lenient-declarations --profile <rabbitmq|apsaramq>]",
		flags: func(f *pflag.FlagSet) {
			m.flags(f)
			f.StringVar(&profile, "profile", "", "whose behaviour the virtual host follows: rabbitmq or apsaramq")
		},
		run: func(i *invocation) error {
			body := m.body(i)
			if i.set("profile") {
				body["profile"] = profile
			}
			i.say(`Adding vhost "%s" ...`, i.args[0])
			return explain(i.put(path("vhosts", i.args[0]), body))
		},
	}
}

func deleteVHost() verb {
	return verb{
		name: "delete_vhost", short: "Deletes a virtual host", min: 1, max: 1, usage: "<vhost>",
		run: func(i *invocation) error {
			i.say(`Deleting vhost "%s" ...`, i.args[0])
			err := i.delete(path("vhosts", i.args[0]))
			if is(err, http.StatusNotFound) {
				return noVHost(i.args[0])
			}
			return explain(err)
		},
	}
}

func listVHosts() verb {
	return verb{
		name: "list_vhosts", short: "Lists virtual hosts", max: -1, usage: "[--no-table-headers] [<column> ...]",
		run: func(i *invocation) error {
			columns, err := chooseColumns(i.args, vhostColumns, "name")
			if err != nil {
				return err
			}
			var items []object
			if err := i.get("vhosts", &items); err != nil {
				return explain(err)
			}
			return i.list("Listing vhosts ...", columns, items)
		},
	}
}
