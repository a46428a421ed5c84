package ctl

import (
	"net/http"

	"github.com/spf13/pflag"
)

// strandedVerbs are our own verbs about messages on their way from one log to another.
func strandedVerbs() []verb { return []verb{listOutboxes(), relocateStranded()} }

func listOutboxes() verb {
	return verb{
		name: "list_outboxes", short: "Lists messages on their way between Raft groups and classic queues", max: 0,
		run: func(i *invocation) error {
			var items []object
			if err := i.get("outboxes", &items); err != nil {
				return explain(err)
			}
			return i.list("Listing outboxes ...", fields("from", "to", "messages_in_transit", "messages_stranded", "closed"), items)
		},
	}
}

func relocateStranded() verb {
	var from, to string
	var limit int
	return verb{
		name: "relocate_stranded", short: "Sends messages whose target queue is gone to another queue, or back to the queue they left", max: 0,
		usage: "[--vhost <vhost>] [--from-queue <queue>] [--to <queue>] [--limit <n>]",
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&from, "from-queue", "", "only messages that left this queue")
			f.StringVar(&to, "to", "", "queue to send the messages to; without it they go back to the queue they left")
			f.IntVar(&limit, "limit", 0, "send at most this many; 0 means all")
		},
		run: func(i *invocation) error {
			if limit < 0 {
				return badArgument("--limit must not be negative")
			}
			if to == "" {
				i.say("Taking stranded messages of vhost '%s' back to their queues ...", i.vhost)
			} else {
				i.say("Sending stranded messages of vhost '%s' to queue '%s' ...", i.vhost, to)
			}
			i.api.http.Timeout = i.limit(0) // no timeout unless --timeout was given
			var done struct {
				Relocated int `json:"relocated"`
				Stranded  int `json:"messages_stranded"`
			}
			err := i.post(path("stranded", i.vhost, "relocate"), object{"queue": from, "to": to, "limit": limit}, &done)
			if is(err, http.StatusNotFound) {
				return failPlainly(exitData, "Object (queue, stream, exchange, etc) was not found")
			}
			if err != nil {
				return explain(err)
			}
			if i.formatter == "json" {
				text, err := encode(object{"relocated": done.Relocated, "messages_stranded": done.Stranded})
				if err != nil {
					return fail(exitSoftware, "%v", err)
				}
				i.print("%s", text)
				return nil
			}
			i.print("relocated: %d, still stranded on this node: %d", done.Relocated, done.Stranded)
			return nil
		},
	}
}
