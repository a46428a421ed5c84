package ctl

import (
	"net/http"
)

func shovelVerbs() []verb { return []verb{shovelStatus(), deleteShovel(), restartShovel()} }

func shovelStatus() verb {
	return verb{
		name: "shovel_status", short: "Displays status of Shovel on a node", max: 0,
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			var items []object
			if err := i.get("shovels", &items); err != nil {
				return explain(err)
			}
			columns := fields(
				"name", "vhost", "type", "state", "source_uri", "source_queue", "destination_uri", "destination", "destination_key", "forwarded", "pending", "remaining", "reason",
			)
			for k, name := range map[int]string{4: "src_uri", 5: "src_queue", 6: "dest_uri", 7: "dest_exchange", 8: "dest_exchange_key"} {
				columns[k].value = func(o object) any { return o[name] }
			}
			destination := columns[7].value
			columns[7].value = func(o object) any {
				if q, ok := o["dest_queue"]; ok {
					return q
				}
				return destination(o)
			}
			return i.list("Shovel status on node "+node, columns, items)
		},
	}
}

func deleteShovel() verb {
	return verb{
		name: "delete_shovel", short: "Deletes a Shovel", min: 1, max: 1, usage: "[--vhost <vhost>] <name>",
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			i.say("Deleting shovel %s in vhost %s", i.args[0], i.vhost)
			err = i.delete(path("shovels", "vhost", i.vhost, i.args[0]))
			if is(err, http.StatusNotFound) {
				return fail(exitUnavailable, "Shovel with the given name was not found on the target node '%s' and/or virtual host '%s'. "+
					"It may be failing to connect and report its state, will delete its runtime parameter...", node, i.vhost)
			}
			return explain(err)
		},
	}
}

func restartShovel() verb {
	return verb{
		name: "restart_shovel", short: "Restarts a dynamic Shovel", min: 1, max: 1, usage: "[--vhost <vhost>] <name>",
		run: func(i *invocation) error {
			node, err := i.node()
			if err != nil {
				return err
			}
			i.say("Restarting dynamic Shovel %s in virtual host %s on node %s", i.args[0], i.vhost, node)
			err = i.delete(path("shovels", "vhost", i.vhost, i.args[0], "restart"))
			if is(err, http.StatusNotFound) {
				return fail(exitUnavailable, "Shovel with the given name was not found on the target node '%s' and / or virtual host '%s'", node, i.vhost)
			}
			return explain(err)
		},
	}
}
