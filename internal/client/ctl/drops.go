package ctl

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

var (
	dropColumns         = fields("last", "first", "count", "vhost", "queue", "reason", "why", "exchange", "routing_keys", "message_id", "type", "bytes")
	standardDropColumns = []string{"last", "count", "queue", "reason", "why", "exchange", "routing_keys", "message_id"}
)

const (
	defaultDropLines = 50
	maxDropLines     = 1000 // the API's
)

// droppedMessages is the API's answer.
type droppedMessages struct {
	Items []struct {
		VHost, Queue, Reason, Why, Exchange, Type string
		First                                     int64    `json:"first_ms"`
		Last                                      int64    `json:"last_ms"`
		Keys                                      []string `json:"routing_keys"`
		MessageID                                 string   `json:"message_id"`
		Count                                     uint64
		Bytes                                     int
		Example                                   bool
	}
	Total   int
	Dropped uint64
}

func dropVerbs() []verb {
	var queue, why, reason string
	var limit int
	return []verb{{
		name: "drops", short: "Lists the messages that the node has dropped, and why", max: -1,
		usage: "[--vhost <vhost>] [--queue <queue>] [--why <why>] [--reason <reason>] [--limit <n>] [--no-table-headers] [<column>, ...]",
		long: `One line for messages that were dropped alike within a minute, the latest first, of all virtual hosts without --vhost. Exchange, routing keys, id, type and bytes are those of one of them. Why:
no_dlx (their queue has no dead-letter exchange), dlx_missing (it does not exist), no_route (it leads nowhere), cycle (every target would have closed a cycle), target_refused (every
target was full), unroutable (published to an exchange that led nowhere). ` + columnHelp(dropColumns, standardDropColumns...),
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&queue, "queue", "", "only messages of this queue")
			f.StringVar(&why, "why", "", "only messages that were dropped for this: no_dlx, dlx_missing, no_route, cycle, target_refused or unroutable")
			f.StringVar(&reason, "reason", "", "only messages that died for this reason: rejected, expired, maxlen or delivery_limit")
			f.IntVar(&limit, "limit", defaultDropLines, fmt.Sprintf("number of lines, at most %d", maxDropLines))
		},
		run: func(i *invocation) error {
			if limit < 1 || limit > maxDropLines {
				return badArgument("--limit must be a number from 1 to %d", maxDropLines)
			}
			standard, where := standardDropColumns, "vhost '"+i.vhost+"'"
			if !i.set("vhost") { // then all, as dlq ls and dlq groups
				standard, where = slices.Insert(slices.Clone(standard), 2, "vhost"), "all virtual hosts"
			}
			columns, err := chooseColumns(i.args, dropColumns, standard...)
			if err != nil {
				return err
			}
			query := url.Values{"limit": {strconv.Itoa(limit)}}
			for key, value := range map[string]string{"queue": queue, "why": why, "reason": reason} {
				if value != "" {
					query.Set(key, value)
				}
			}
			var found droppedMessages
			if err := i.get(i.officePath("drops")+"?"+query.Encode(), &found); err != nil {
				return explain(err)
			}
			lines := make([]object, len(found.Items))
			for n, d := range found.Items {
				lines[n] = object{
					"first": shownTime(d.First), "last": shownTime(d.Last), "count": d.Count, "vhost": d.VHost, "queue": d.Queue, "reason": d.Reason, "why": d.Why,
					"exchange": d.Exchange, "routing_keys": strings.Join(d.Keys, " "), "message_id": d.MessageID, "type": d.Type, "bytes": "",
				}
				if d.Example {
					lines[n]["bytes"] = d.Bytes
				}
			}
			return i.list(fmt.Sprintf("%d messages dropped in %s, %d of %d lines ...", found.Dropped, where, len(lines), found.Total), columns, lines)
		},
	}}
}

func shownTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
