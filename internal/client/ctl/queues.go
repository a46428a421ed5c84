package ctl

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/pflag"
)

var queueColumns = append(fields(
	"name", "durable", "auto_delete", "exclusive", "type", "state", "policy", "operator_policy",
	"messages", "messages_ready", "messages_unacknowledged", "messages_persistent", "messages_ram", "messages_ready_ram",
	"messages_unacknowledged_ram", "message_bytes", "message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_ram",
	"message_bytes_persistent", "message_bytes_dlx", "messages_dlx", "messages_delayed", "messages_set_aside", "delayed_retry", "delivery_limit", "dead_letters",
	"consumers", "consumer_utilisation", "consumer_capacity", "exclusive_consumer_tag", "single_active_consumer_tag",
	"effective_policy_definition", "head_message_timestamp", "memory", "leader", "members", "online", "disk_reads", "disk_writes",
	"vhost",
),
	column{"arguments", func(o object) any { return argumentsOf(o["arguments"]) }},
	column{"features", featuresOf},
	column{"pid", func(o object) any { return pid(o["node"], o["name"]) }},
	column{"owner_pid", func(object) any { return "" }},
	column{"exclusive_consumer_pid", func(object) any { return "" }},
)

func queueVerbs() []verb {
	return []verb{listQueues(), purgeQueue(), deleteQueue()}
}

func listQueues() verb {
	return verb{
		name: "list_queues", short: "Lists queues and their properties", max: -1,
		long:  columnHelp(queueColumns, "name", "messages"),
		usage: "[--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...] [--timeout <timeout>]",
		flags: func(f *pflag.FlagSet) {
			for _, name := range []string{"online", "offline", "local"} {
				f.Bool(name, false, "accepted for compatibility: there is one node")
			}
		},
		run: func(i *invocation) error {
			columns, err := chooseColumns(i.args, queueColumns, "name", "messages")
			if err != nil {
				return err
			}
			items := []object{}
			if !i.set("offline") {
				if err := i.get(path("queues", i.vhost), &items); err != nil {
					return i.inVHost(err)
				}
			}
			return i.list("Timeout: 60.0 seconds ...\nListing queues for vhost "+i.vhost+" ...", columns, items)
		},
	}
}

func purgeQueue() verb {
	return verb{
		name: "purge_queue", short: "Purges a queue (removes all messages in it)", min: 1, max: 1, usage: "[--vhost <vhost>] <queue>",
		run: func(i *invocation) error {
			i.say("Purging queue '%s' in vhost '%s' ...", i.args[0], i.vhost)
			err := i.delete(path("queues", i.vhost, i.args[0], "contents"))
			if is(err, http.StatusNotFound) {
				return failPlainly(exitData, "Object (queue, stream, exchange, etc) was not found")
			}
			return explain(err)
		},
	}
}

func deleteQueue() verb {
	var ifEmpty, ifUnused bool
	return verb{
		name: "delete_queue", short: "Deletes a queue", min: 1, max: 1,
		usage: "[--vhost <vhost>] <queue> [--if-empty|-e] [--if-unused|-u]",
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&ifEmpty, "if-empty", "e", false, "only if it has no ready messages")
			f.BoolVarP(&ifUnused, "if-unused", "u", false, "only if it has no consumers")
		},
		run: func(i *invocation) error {
			var conditions []string
			query := url.Values{}
			if ifEmpty {
				conditions = append(conditions, "empty")
				query.Set("if-empty", "true")
			}
			if ifUnused {
				conditions = append(conditions, "unused")
				query.Set("if-unused", "true")
			}
			text := ""
			if conditions != nil {
				text = " if queue is " + strings.Join(conditions, " and if queue is ")
			}
			i.say("Deleting queue '%s' on vhost '%s'%s ...", i.args[0], i.vhost, text)
			at := path("queues", i.vhost, i.args[0])
			var q struct {
				Ready int `json:"messages_ready"`
			}
			err := i.get(at, &q)
			if err == nil {
				err = i.delete(at + "?" + query.Encode())
			}
			if is(err, http.StatusNotFound) {
				return fail(exitUsage, "No such queue was found")
			}
			if err != nil {
				return explain(err)
			}
			i.say("Queue was successfully deleted with %d ready messages", q.Ready)
			return nil
		},
	}
}
