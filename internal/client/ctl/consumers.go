package ctl

var consumerColumns = append(fields("consumer_tag", "ack_required", "prefetch_count", "active", "activity_status", "exclusive", "consumer_timeout"),
	column{"queue_name", func(o object) any {
		queue, _ := o["queue"].(object)
		return queue["name"]
	}},
	column{"channel_pid", func(o object) any {
		channel, _ := o["channel_details"].(object)
		return channelPID(channel["node"], channel["peer_port"], channel["number"])
	}},
	column{"arguments", func(o object) any { return argumentsOf(o["arguments"]) }},
)

func consumerVerbs() []verb {
	return []verb{{
		name: "list_consumers", short: "Lists all consumers for a vhost", max: -1, usage: "[--vhost <vhost>] [--no-table-headers] [<column>, ...]",
		run: func(i *invocation) error {
			columns, err := chooseColumns(i.args, consumerColumns,
				"queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active", "arguments")
			if err != nil {
				return err
			}
			var items []object
			if err := i.get(path("consumers", i.vhost), &items); err != nil {
				return i.inVHost(err)
			}
			return i.list("Listing consumers in vhost "+i.vhost+" ...", columns, items)
		},
	}}
}
