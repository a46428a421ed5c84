package ctl

var channelColumns = append(fields(
	"name", "number", "user", "vhost", "state", "confirm", "transactional", "consumer_count", "prefetch_count", "global_prefetch_count",
	"messages_unacknowledged", "messages_unconfirmed", "messages_uncommitted", "acks_uncommitted",
),
	column{"pid", func(o object) any {
		connection, _ := o["connection_details"].(object)
		return channelPID(o["node"], connection["peer_port"], o["number"])
	}},
	column{"connection", func(o object) any {
		connection, _ := o["connection_details"].(object)
		return connection["name"]
	}},
)

func channelPID(node, peerPort, number any) string { return pid(node, peerPort, number, 0) }

func channelVerbs() []verb {
	return []verb{{
		name: "list_channels", short: "Lists all channels in the node", max: -1, usage: "[--no-table-headers] [<column>, ...]",
		run: func(i *invocation) error {
			columns, err := chooseColumns(i.args, channelColumns, "pid", "user", "consumer_count", "messages_unacknowledged")
			if err != nil {
				return err
			}
			var items []object
			if err := i.get("channels", &items); err != nil {
				return explain(err)
			}
			return i.list("Listing channels ...", columns, items)
		},
	}}
}
