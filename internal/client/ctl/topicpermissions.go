package ctl

import "net/http"

func topicPermissionVerbs() []verb {
	return []verb{setTopicPermissions(), clearTopicPermissions(), listTopicPermissions(), listUserTopicPermissions()}
}

func setTopicPermissions() verb {
	return verb{
		name: "set_topic_permissions", short: "Sets user topic permissions for an exchange", min: 4, max: 4,
		usage: "[--vhost <vhost>] <username> <exchange> <write> <read>",
		run: func(i *invocation) error {
			i.say(`Setting topic permissions on "%s" for user "%s" in vhost "%s" ...`, i.args[1], i.args[0], i.vhost)
			err := i.put(path("topic-permissions", i.vhost, i.args[0]), object{"exchange": i.args[1], "write": i.args[2], "read": i.args[3]})
			return i.grantFailed(err, i.args[0])
		},
	}
}

func clearTopicPermissions() verb {
	return verb{
		name: "clear_topic_permissions", short: "Clears user topic permissions for a vhost or exchange", min: 1, max: 2,
		usage: "[--vhost <vhost>] <username> [<exchange>]",
		run: func(i *invocation) error {
			at := []string{"topic-permissions", i.vhost, i.args[0]}
			if len(i.args) > 1 {
				at = append(at, i.args[1])
				i.say(`Clearing topic permissions on "%s" for user "%s" in vhost "%s" ...`, i.args[1], i.args[0], i.vhost)
			} else {
				i.say(`Clearing topic permissions for user "%s" in vhost "%s" ...`, i.args[0], i.vhost)
			}
			err := i.delete(path(at...))
			if is(err, http.StatusNotFound) {
				return nil // there were none
			}
			return explain(err)
		},
	}
}

func listTopicPermissions() verb {
	return verb{
		name: "list_topic_permissions", short: "Lists topic permissions in a virtual host", max: 0, usage: "[--vhost <vhost>] [--no-table-headers]",
		run: func(i *invocation) error {
			var items []object
			if err := i.get(path("vhosts", i.vhost, "topic-permissions"), &items); err != nil {
				return i.inVHost(err)
			}
			return i.list(`Listing topic permissions for vhost "`+i.vhost+`" ...`, fields("user", "exchange", "write", "read"), items)
		},
	}
}

func listUserTopicPermissions() verb {
	return verb{
		name: "list_user_topic_permissions", short: "Lists user topic permissions", min: 1, max: 1, usage: "[--no-table-headers] <username>",
		run: func(i *invocation) error {
			var items []object
			err := i.get(path("users", i.args[0], "topic-permissions"), &items)
			if is(err, http.StatusNotFound) {
				return noUser(i.args[0])
			}
			if err != nil {
				return explain(err)
			}
			return i.list(`Listing topic permissions for user "`+i.args[0]+`" ...`, fields("vhost", "exchange", "write", "read"), items)
		},
	}
}
