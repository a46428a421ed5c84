package ctl

import (
	"encoding/json"
	"net/http"

	"github.com/spf13/pflag"
)

// policyKind has the differences between policies and operator policies.
type policyKind struct {
	path                        string
	setText, clearText, listing string
}

var (
	plainPolicy = policyKind{"policies", "Setting policy", "Clearing policy", "Listing policies"}
	operatorOne = policyKind{"operator-policies", "Setting operator policy override", "Clearing operator policy", "Listing operator policy overrides"}
)

func policyVerbs() []verb {
	return []verb{
		setPolicy("set_policy", "Sets or updates a policy", plainPolicy),
		clearPolicy("clear_policy", "Clears (removes) a policy", plainPolicy),
		listPolicies("list_policies", "Lists all policies in a virtual host", plainPolicy),
		setPolicy("set_operator_policy", "Sets an operator policy that overrides a subset of arguments in user policies", operatorOne),
		clearPolicy("clear_operator_policy", "Clears an operator policy", operatorOne),
		listPolicies("list_operator_policies", "Lists operator policy overrides for a virtual host", operatorOne),
		setQueueArguments(),
	}
}

func setPolicy(name, short string, kind policyKind) verb {
	var applyTo, priority string
	return verb{
		name: name, short: short, min: 3, max: 3,
		usage: "[--vhost <vhost>] [--priority <priority>] [--apply-to <apply-to>] <name> <pattern> <definition>",
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&applyTo, "apply-to", "all", "queues, classic_queues, quorum_queues, streams, exchanges or all")
			f.StringVar(&priority, "priority", "0", "the policy with the highest priority applies")
		},
		run: func(i *invocation) error {
			policy, pattern, definition := i.args[0], i.args[1], i.args[2]
			if !json.Valid([]byte(priority)) {
				return badArgument("priority should be a number, actually was %s", priority)
			}
			i.say(`%s "%s" for pattern "%s" to "%s" with priority "%s" for vhost "%s" ...`, kind.setText, policy, pattern, definition, priority, i.vhost)
			parsed, err := parseJSON(definition)
			if err != nil {
				return err
			}
			err = i.put(path(kind.path, i.vhost, policy), object{
				"pattern": pattern, "definition": parsed, "priority": json.Number(priority), "apply-to": applyTo,
			})
			return i.inVHost(err)
		},
	}
}

func clearPolicy(name, short string, kind policyKind) verb {
	return verb{
		name: name, short: short, min: 1, max: 1, usage: "[--vhost <vhost>] <name>",
		run: func(i *invocation) error {
			i.say(`%s "%s" on vhost "%s" ...`, kind.clearText, i.args[0], i.vhost)
			err := i.delete(path(kind.path, i.vhost, i.args[0]))
			if is(err, http.StatusNotFound) {
				return fail(exitUnavailable, "Parameter does not exist")
			}
			return explain(err)
		},
	}
}

func listPolicies(name, short string, kind policyKind) verb {
	return verb{
		name: name, short: short, max: 0, usage: "[--vhost <vhost>] [--no-table-headers]",
		run: func(i *invocation) error {
			var items []object
			if err := i.get(path(kind.path, i.vhost), &items); err != nil {
				return i.inVHost(err)
			}
			columns := append(fields("vhost", "name", "pattern", "apply-to"), column{"definition", definitionText}, field("priority"))
			return i.list(kind.listing+` for vhost "`+i.vhost+`" ...`, columns, items)
		},
	}
}

// definitionText is a policy's definition as JSON text, in every format.
func definitionText(o object) any {
	text, err := encode(o["definition"])
	if err != nil {
		return ""
	}
	return text
}

func setQueueArguments() verb {
	var unset []string
	return verb{
		name: "set_queue_arguments", short: "Changes arguments of a queue: dead-lettering, TTLs, limits, delayed retry", min: 1, max: 2,
		usage: "[--vhost <vhost>] [--unset <argument>,<...>] <queue> [<arguments as JSON>]",
		flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&unset, "unset", nil, "arguments to take away")
		},
		run: func(i *invocation) error {
			body := object{"unset": unset}
			if unset == nil {
				body["unset"] = []string{}
			}
			if len(i.args) > 1 {
				set, err := parseJSON(i.args[1])
				if err != nil {
					return err
				}
				body["set"] = set
			}
			i.say(`Changing arguments of queue "%s" in vhost "%s" ...`, i.args[0], i.vhost)
			err := i.put(path("office", "queues", i.vhost, i.args[0], "arguments"), body)
			if is(err, http.StatusNotFound) {
				return fail(exitData, "no queue '%s' in vhost '%s'", i.args[0], i.vhost)
			}
			return i.inVHost(err)
		},
	}
}
