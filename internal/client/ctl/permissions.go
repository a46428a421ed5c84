package ctl

import (
	"net/http"
	"strings"
)

func permissionVerbs() []verb {
	return []verb{setPermissions(), clearPermissions(), listPermissions(), listUserPermissions()}
}

// grantFailed explains why permissions were not set: a user or a virtual host is missing.
func (i *invocation) grantFailed(err error, user string) error {
	if !is(err, http.StatusBadRequest) || !strings.HasPrefix(err.Error(), "vhost_or_user_not_found") {
		return explain(err)
	}
	if is(i.get(path("users", user), nil), http.StatusNotFound) {
		return fail(exitNoUser, "User %s does not exist", user)
	}
	return fail(exitUnavailable, "Virtual host %s does not exist", i.vhost)
}

func setPermissions() verb {
	return verb{
		name: "set_permissions", short: "Sets user permissions for a vhost", min: 4, max: 4, usage: "[--vhost <vhost>] <username> <conf> <write> <read>",
		run: func(i *invocation) error {
			i.say(`Setting permissions for user "%s" in vhost "%s" ...`, i.args[0], i.vhost)
			err := i.put(path("permissions", i.vhost, i.args[0]), object{"configure": i.args[1], "write": i.args[2], "read": i.args[3]})
			return i.grantFailed(err, i.args[0])
		},
	}
}

func clearPermissions() verb {
	return verb{
		name: "clear_permissions", short: "Revokes user permissions for a vhost", min: 1, max: 1, usage: "[--vhost <vhost>] <username>",
		run: func(i *invocation) error {
			i.say(`Clearing permissions for user "%s" in vhost "%s" ...`, i.args[0], i.vhost)
			err := i.delete(path("permissions", i.vhost, i.args[0]))
			if is(err, http.StatusNotFound) {
				return nil // there were none
			}
			return explain(err)
		},
	}
}

func listPermissions() verb {
	return verb{
		name: "list_permissions", short: "Lists user permissions in a virtual host", max: 0, usage: "[--vhost <vhost>] [--no-table-headers]",
		run: func(i *invocation) error {
			var items []object
			if err := i.get(path("vhosts", i.vhost, "permissions"), &items); err != nil {
				return i.inVHost(err)
			}
			return i.list(`Listing permissions for vhost "`+i.vhost+`" ...`, fields("user", "configure", "write", "read"), items)
		},
	}
}

func listUserPermissions() verb {
	return verb{
		name: "list_user_permissions", short: "Lists permissions of a user across all virtual hosts", min: 1, max: 1, usage: "[--no-table-headers] <username>",
		run: func(i *invocation) error {
			var items []object
			err := i.get(path("users", i.args[0], "permissions"), &items)
			if is(err, http.StatusNotFound) {
				return noUser(i.args[0])
			}
			if err != nil {
				return explain(err)
			}
			return i.list(`Listing permissions for user "`+i.args[0]+`" ...`, fields("vhost", "configure", "write", "read"), items)
		},
	}
}
