package ctl

import (
	"maps"
	"net/http"
	"slices"

	"github.com/spf13/pflag"
)

func limitVerbs() []verb {
	return []verb{setVHostLimits(), clearVHostLimits(), listVHostLimits(), setUserLimits(), clearUserLimits(), listUserLimits()}
}

// putLimits sets each limit of a JSON document.
func (i *invocation) putLimits(document string, kind, owner string) error {
	parsed, err := parseJSON(document)
	if err != nil {
		return err
	}
	limits, ok := parsed.(object)
	if !ok {
		return badArgument("limits must be a JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if err := i.put(path(kind, owner, name), object{"value": limits[name]}); err != nil {
			return err
		}
	}
	return nil
}

func setVHostLimits() verb {
	return verb{
		name: "set_vhost_limits", short: "Sets virtual host limits", min: 1, max: 1, usage: "[--vhost <vhost>] <definition>",
		run: func(i *invocation) error {
			i.say(`Setting vhost limits to "%s" for vhost "%s" ...`, i.args[0], i.vhost)
			return i.inVHost(i.putLimits(i.args[0], "vhost-limits", i.vhost))
		},
	}
}

func clearVHostLimits() verb {
	return verb{
		name: "clear_vhost_limits", short: "Clears virtual host limits", max: 0, usage: "[--vhost <vhost>]",
		run: func(i *invocation) error {
			i.say(`Clearing vhost "%s" limits ...`, i.vhost)
			for _, name := range []string{"max-connections", "max-queues"} {
				if err := i.delete(path("vhost-limits", i.vhost, name)); err != nil {
					return i.inVHost(err)
				}
			}
			return nil
		},
	}
}

// limitsOf is an element of the API's list of limits.
type limitsOf struct {
	VHost string `json:"vhost"`
	User  string `json:"user"`
	Value object `json:"value"`
}

func (i *invocation) printLimits(items []limitsOf) error {
	for _, l := range items {
		text, err := encode(l.Value)
		if err != nil {
			return fail(exitSoftware, "%v", err)
		}
		i.print("%s", text)
	}
	return nil
}

func listVHostLimits() verb {
	var global bool
	return verb{
		name: "list_vhost_limits", short: "Displays configured virtual host limits", max: 0, usage: "[--vhost <vhost>] [--global] [--no-table-headers]",
		flags: func(f *pflag.FlagSet) { f.BoolVar(&global, "global", false, "of all virtual hosts") },
		run: func(i *invocation) error {
			var items []limitsOf
			if !global {
				i.say(`Listing limits for vhost "%s" ...`, i.vhost)
				if err := i.get(path("vhost-limits", i.vhost), &items); err != nil {
					return i.inVHost(err)
				}
				return i.printLimits(items)
			}
			if err := i.get("vhost-limits", &items); err != nil {
				return explain(err)
			}
			rows := make([]object, 0, len(items))
			for _, l := range items {
				text, _ := encode(l.Value)
				rows = append(rows, object{"vhost": l.VHost, "limits": text})
			}
			return i.list("Listing limits for all vhosts ...", fields("vhost", "limits"), rows)
		},
	}
}

func setUserLimits() verb {
	return verb{
		name: "set_user_limits", short: "Sets user limits", min: 2, max: 2, usage: "<username> <definition>",
		run: func(i *invocation) error {
			i.say(`Setting user limits to "%s" for user "%s" ...`, i.args[1], i.args[0])
			if _, err := i.account(i.args[0]); err != nil {
				return err
			}
			return explain(i.putLimits(i.args[1], "user-limits", i.args[0]))
		},
	}
}

func clearUserLimits() verb {
	return verb{
		name: "clear_user_limits", short: "Clears user connection/channel limits", min: 2, max: 2, usage: "<username> <limit> | all",
		run: func(i *invocation) error {
			limits := []string{i.args[1]}
			if i.args[1] == "all" {
				i.say(`Clearing all limits for user "%s" ...`, i.args[0])
				limits = []string{"max-connections", "max-channels"}
			} else {
				i.say(`Clearing "%s" limit for user "%s" ...`, i.args[1], i.args[0])
			}
			for _, name := range limits {
				err := i.delete(path("user-limits", i.args[0], name))
				if is(err, http.StatusNotFound) {
					return noUser(i.args[0])
				}
				if err != nil {
					return explain(err)
				}
			}
			return nil
		},
	}
}

func listUserLimits() verb {
	var user string
	var global bool
	return verb{
		name: "list_user_limits", short: "Displays configured user limits", max: 0, usage: "[--user <username>] [--global]",
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&user, "user", "guest", "user whose limits are listed; to log in as another user, use $"+userVariable)
			f.BoolVar(&global, "global", false, "of all users")
		},
		run: func(i *invocation) error {
			var items []limitsOf
			if !global {
				i.say(`Listing limits for user "%s" ...`, user)
				err := i.get(path("user-limits", user), &items)
				if is(err, http.StatusNotFound) {
					return noUser(user)
				}
				if err != nil {
					return explain(err)
				}
				return i.printLimits(items)
			}
			if err := i.get("user-limits", &items); err != nil {
				return explain(err)
			}
			rows := make([]object, 0, len(items))
			for _, l := range items {
				text, _ := encode(l.Value)
				rows = append(rows, object{"user": l.User, "limits": text})
			}
			return i.list("Listing limits for all users ...", fields("user", "limits"), rows)
		},
	}
}
