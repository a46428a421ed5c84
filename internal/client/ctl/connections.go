package ctl

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/pflag"
)

var connectionColumns = append(fields(
	"name", "user", "vhost", "host", "port", "peer_host", "peer_port", "protocol", "state", "channels", "channel_max", "frame_max",
	"timeout", "auth_mechanism", "connected_at", "recv_oct", "recv_cnt", "send_oct", "send_cnt", "send_pend", "ssl",
),
	column{"pid", connectionPID},
	column{"client_properties", func(o object) any { return argumentsOf(o["client_properties"]) }},
)

// pid makes a process id in the form that scripts expect, from numbers that are unique to
// the object.
func pid(node any, numbers ...any) string {
	texts := make([]string, len(numbers))
	for k, n := range numbers {
		texts[k] = sprint(n)
	}
	return fmt.Sprintf("<%s.%s>", sprint(node), strings.Join(texts, "."))
}

func connectionPID(o object) any { return pid(o["node"], o["connected_at"], o["peer_port"], 0) }

func connectionVerbs() []verb {
	return []verb{listConnections(), closeConnection(), closeAllConnections(), closeAllUserConnections()}
}

func listConnections() verb {
	return verb{
		name: "list_connections", short: "Lists AMQP connections for the node", max: -1, usage: "[--no-table-headers] [<column>, ...]",
		run: func(i *invocation) error {
			columns, err := chooseColumns(i.args, connectionColumns, "user", "peer_host", "peer_port", "state")
			if err != nil {
				return err
			}
			items, err := i.connections()
			if err != nil {
				return err
			}
			return i.list("Listing connections ...", columns, items)
		},
	}
}

func (i *invocation) connections() (items []object, err error) {
	err = i.get("connections", &items)
	return items, explain(err)
}

// closeOne closes a connection with a reason for its client.
func (i *invocation) closeOne(name, reason string) error {
	return i.api.close(i.ctx, path("connections", name), reason)
}

func closeConnection() verb {
	return verb{
		name: "close_connection", min: 2, max: 2, usage: "<connectionpid> <explanation>",
		short: "Instructs the broker to close the connection with this process id or name",
		run: func(i *invocation) error {
			i.say("Closing connection %s, reason: %s...", i.args[0], i.args[1])
			items, err := i.connections()
			if err != nil {
				return err
			}
			for _, c := range items {
				if c["name"] == i.args[0] || connectionPID(c) == i.args[0] {
					err := i.closeOne(sprint(c["name"]), i.args[1])
					if is(err, http.StatusNotFound) {
						return nil // it was closed meanwhile
					}
					return explain(err)
				}
			}
			return fail(exitUnavailable, "connection %s does not exist", i.args[0])
		},
	}
}

// closeMatching closes the chosen connections and returns their number.
func (i *invocation) closeMatching(reason string, limit int, chosen func(object) bool) (closed int, err error) {
	items, err := i.connections()
	if err != nil {
		return 0, err
	}
	for _, c := range items {
		if limit > 0 && closed == limit {
			break
		}
		if !chosen(c) {
			continue
		}
		err := i.closeOne(sprint(c["name"]), reason)
		if err != nil && !is(err, http.StatusNotFound) {
			return closed, explain(err)
		}
		closed++
	}
	return closed, nil
}

func closeAllConnections() verb {
	var global bool
	var limit, delay int
	return verb{
		name: "close_all_connections", min: 1, max: 1, usage: "[--vhost <vhost> --limit <limit>] [-n <node> --global] [--per-connection-delay <delay>] <explanation>",
		short: "Instructs the broker to close all connections for the specified vhost or entire RabbitMQ node",
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&global, "global", false, "in all virtual hosts")
			f.IntVar(&limit, "limit", 0, "close at most this many; 0 means all")
			f.IntVar(&delay, "per-connection-delay", 0, "accepted for compatibility and ignored")
		},
		run: func(i *invocation) error {
			where := "in vhost " + i.vhost
			if global {
				where = "to node " + i.name
			}
			i.say("Closing all connections %s, reason: %s...", where, i.args[0])
			closed, err := i.closeMatching(i.args[0], limit, func(o object) bool { return global || o["vhost"] == i.vhost })
			if err != nil {
				return err
			}
			i.say("Closed %d connections", closed)
			return nil
		},
	}
}

func closeAllUserConnections() verb {
	return verb{
		name: "close_all_user_connections", short: "Instructs the broker to close all connections of the specified user", min: 2, max: 2,
		usage: "<username> <explanation>",
		run: func(i *invocation) error {
			i.say("Closing connections of user %s, reason: %s...", i.args[0], i.args[1])
			_, err := i.closeMatching(i.args[1], 0, func(o object) bool { return o["user"] == i.args[0] })
			return err
		},
	}
}
