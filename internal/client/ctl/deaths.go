package ctl

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// deathColumns are the columns of the listing: values of the message, and of one entry of
// its x-death. headers are all but x-death.
var (
	deathColumns = fields("message", "message_id", "payload", "routing_key", "headers", "replayed_from",
		"reason", "queue", "count", "exchange", "routing_keys", "time", "original_expiration")
	standardDeathColumns = []string{"message", "payload", "reason", "queue", "count", "exchange", "routing_keys", "time"}

	// causeColumns are those of --by-cause.
	causeColumns = fields("reason", "queue", "messages", "earliest", "latest")
)

const (
	defaultDeaths = 20     // messages
	searchDeaths  = 10_000 // messages, if not all of them are shown
	payloadShown  = 60     // bytes
)

func deathVerbs() []verb {
	var limit int
	var reason string
	var byCause bool
	return []verb{{
		name: "deaths", short: "Shows where, why and how often the messages of a queue died", min: 1, max: -1,
		usage: "[--vhost <vhost>] [--reason <reason>] [--by-cause] [--limit <n>] [--no-table-headers] <queue> [<column>, ...]",
		long: "One line for each death of a message, the latest first. " + columnHelp(deathColumns, standardDeathColumns...) +
			"\n\nWith --by-cause one line for each reason and queue of a last death, with the number of its messages, the most first. " + columnHelp(causeColumns, names(causeColumns)...),
		flags: func(f *pflag.FlagSet) {
			f.IntVar(&limit, "limit", defaultDeaths, fmt.Sprintf("number of messages to read, from the head of the queue; %d with --reason or --by-cause", searchDeaths))
			f.StringVar(&reason, "reason", "", "only messages whose last death has this reason: "+strings.Join(deathReasons, ", "))
			f.BoolVar(&byCause, "by-cause", false, "count the messages by the reason and the queue of their last death")
		},
		run: func(i *invocation) error {
			if limit < 1 {
				return badArgument("--limit must be positive")
			}
			if i.set("reason") && !slices.Contains(deathReasons, reason) {
				return badArgument("--reason must be one of %s", strings.Join(deathReasons, ", "))
			}
			if (reason != "" || byCause) && !i.set("limit") {
				limit = searchDeaths
			}
			known, standard := deathColumns, standardDeathColumns
			if byCause {
				known, standard = causeColumns, names(causeColumns)
			}
			columns, err := chooseColumns(i.args[1:], known, standard...)
			if err != nil {
				return err
			}
			var messages []deadMessage
			err = i.post(path("queues", i.vhost, i.args[0], "get"), object{
				"count": limit, "ackmode": "peek", "encoding": "auto", "truncate": payloadShown,
			}, &messages)
			if is(err, http.StatusNotFound) {
				return failPlainly(exitData, "Object (queue, stream, exchange, etc) was not found")
			}
			if err != nil {
				return explain(err)
			}
			var lines []object
			causes := causes{}
			for n, m := range messages {
				deaths := m.deaths(n + 1)
				if reason != "" && deaths[0]["reason"] != reason {
					continue
				}
				if causes.add(deaths[0]); !byCause {
					lines = append(lines, deaths...)
				}
			}
			if byCause {
				lines = causes.lines()
			}
			all := len(messages)
			if all > 0 {
				all += messages[all-1].Left
			}
			return i.list(fmt.Sprintf("Deaths of %d of %s in queue '%s' in vhost '%s', changing nothing ...", len(messages), counted(all, "message"), i.args[0], i.vhost), columns, lines)
		},
	}}
}

// deathReasons are RabbitMQ's.
var deathReasons = []string{"rejected", "expired", "maxlen", "delivery_limit"}

// causes counts messages by the reason and the queue of their last death.
type causes map[[2]string]object

// add counts a message by the line of its last death. The times of x-death are texts that sort as they follow each other.
func (c causes) add(death object) {
	reason, queue, at := sprint(death["reason"]), sprint(death["queue"]), sprint(death["time"])
	line := c[[2]string{reason, queue}]
	if line == nil {
		line = object{"reason": reason, "queue": queue, "messages": 0, "earliest": at, "latest": at}
		c[[2]string{reason, queue}] = line
	}
	line["messages"] = line["messages"].(int) + 1
	line["earliest"], line["latest"] = min(line["earliest"].(string), at), max(line["latest"].(string), at)
}

// lines are those of the listing, the cause with the most messages first.
func (c causes) lines() []object {
	return slices.SortedFunc(maps.Values(c), func(a, b object) int {
		return cmp.Or(b["messages"].(int)-a["messages"].(int), cmp.Compare(a["reason"].(string), b["reason"].(string)), cmp.Compare(a["queue"].(string), b["queue"].(string)))
	})
}

// deadMessage is a message as the API shows it.
type deadMessage struct {
	Payload    string
	Encoding   string `json:"payload_encoding"`
	RoutingKey string `json:"routing_key"`
	Left       int    `json:"message_count"` // ready messages behind it
	// Properties is an empty list if there are none.
	Properties json.RawMessage

	id, headers, from string // what is in them: see deaths
}

// text is the beginning of the payload. A payload that was cut within a character arrives as
// base64; text drops the character. A payload that is not text stays base64.
func (m *deadMessage) text() string {
	raw, err := base64.StdEncoding.DecodeString(m.Payload)
	if m.Encoding != "base64" || err != nil {
		return m.Payload
	}
	for cut := range min(utf8.UTFMax, len(raw)) {
		if beginning := raw[:len(raw)-cut]; utf8.Valid(beginning) {
			return string(beginning)
		}
	}
	return m.Payload
}

// deaths are the lines of the nth message, the latest death first: one for each entry of
// its x-death, and one that has no death if there is none.
func (m *deadMessage) deaths(n int) []object {
	var properties struct {
		ID      string `json:"message_id"`
		Headers object
	}
	d := json.NewDecoder(bytes.NewReader(m.Properties))
	d.UseNumber()
	_ = d.Decode(&properties) // an empty list if there are none
	// Headers from a client may have any form.
	deaths, _ := properties.Headers["x-death"].([]any)
	delete(properties.Headers, "x-death")
	m.id, m.headers, m.from = properties.ID, "", sprint(properties.Headers[replayedFrom])
	if len(properties.Headers) > 0 {
		m.headers, _ = encode(properties.Headers)
	}
	var lines []object
	for _, death := range deaths {
		if death, ok := death.(object); ok {
			lines = append(lines, m.line(n, death))
		}
	}
	if lines == nil {
		lines = []object{m.line(n, object{})}
	}
	return lines
}

const replayedFrom = "x-replayed-from"

func (m *deadMessage) line(n int, death object) object {
	line := object{
		"message": n, "payload": m.text(), "routing_key": m.RoutingKey, "message_id": m.id, "headers": m.headers, "replayed_from": m.from,
	}
	for _, key := range []string{"reason", "queue", "exchange"} {
		line[key] = sprint(death[key])
	}
	line["count"] = ""
	if count, ok := death["count"].(json.Number); ok {
		line["count"] = count
	}
	line["original_expiration"] = sprint(death["original-expiration"])
	var keys []string
	list, _ := death["routing-keys"].([]any)
	for _, key := range list {
		keys = append(keys, sprint(key))
	}
	line["routing_keys"] = strings.Join(keys, " ")
	line["time"] = ""
	if number, ok := death["time"].(json.Number); ok {
		if seconds, err := number.Int64(); err == nil {
			line["time"] = time.Unix(seconds, 0).UTC().Format(time.RFC3339)
		}
	}
	return line
}
