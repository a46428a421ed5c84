package ctl

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const auditHelp = `One line for each act, the latest first: jobs, edits, what was said of groups, rules, masks, webhooks, changed queues and virtual hosts, and who saw what masks hide. What was done several times within a minute is one line. The last 10,000 acts are kept.

--what is a kind and a deed, such as job.made, or the beginning of it with a star: 'job.*'. --who '' is the node itself. Without --vhost it shows all virtual hosts, and what is of none. With --json each act is a line, with all of its detail; it needs the tag monitoring.

Exit codes: 0: done; 1: nothing was found; 65: an option is wrong; 77: not allowed; other codes: it failed.`

// auditPage is how many acts are asked for at once: the API's most.
const auditPage = 1000

// act is an entry of the audit as the API shows it.
type act struct {
	ID                                          json.Number
	At                                          int64 `json:"time_ms"`
	Last                                        int64 `json:"last_ms"`
	Who, Peer, What, VHost, Object, Why, Detail string
	Count                                       uint64
	Times                                       int
}

type auditOptions struct {
	who, what, since, until string
	limit                   int
	reveal, asJSON          bool
}

func auditVerb() verb {
	o := &auditOptions{}
	return verb{
		name: "audit", short: "Lists who did what to dead letters, and why", long: auditHelp, usage: "[--vhost <vhost>] [--who <user>] [--what <what>] [--since <time>] [--until <time>] [--limit <n>] [--reveal] [--json]",
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&o.who, "who", "", "only acts of this user")
			f.StringVar(&o.what, "what", "", "only acts of this kind: job.made, 'rule*'")
			f.StringVar(&o.since, "since", "", "only acts since then: 2026-11-27T03:00:00Z, or for so long: 90s, 15m, 12h or 2d")
			f.StringVar(&o.until, "until", "", "only acts before then, or longer ago")
			f.IntVar(&o.limit, "limit", 50, "number of acts; 0 means all")
			f.BoolVar(&o.asJSON, "json", false, "a line of JSON for each, as the management API has it")
			revealFlag(f, &o.reveal)
		},
		run: func(i *invocation) error { return i.listAudit(o) },
	}
}

// moment reads a time, or how long ago it was; 0 if it is not given.
func moment(flag, text string, now time.Time) (ms int64, err error) {
	if text == "" {
		return 0, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UnixMilli(), nil
	}
	days, isDays := strings.CutSuffix(text, "d")
	if n, err := strconv.ParseUint(days, 10, 16); isDays && err == nil {
		return now.AddDate(0, 0, -int(n)).UnixMilli(), nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago).UnixMilli(), nil
	}
	return 0, badArgument("--%s '%s' must be a time such as 2026-11-27T03:00:00Z, or how long ago: 90s, 15m, 12h, 2d", flag, text)
}

func (i *invocation) listAudit(o *auditOptions) error {
	if o.limit < 0 {
		return badArgument("--limit must be at least 0")
	}
	now := time.Now()
	since, err := moment("since", o.since, now)
	if err != nil {
		return err
	}
	until, err := moment("until", o.until, now)
	if err != nil {
		return err
	}
	query := url.Values{"limit": {strconv.Itoa(auditPage)}}
	for flag, value := range map[string]string{"who": o.who, "what": o.what, "vhost": i.vhost} {
		if i.set(flag) {
			query.Set(flag, value)
		}
	}
	if o.reveal {
		query.Set("reveal", "true")
	}
	if o.limit > 0 && o.limit < auditPage && until == 0 && since == 0 {
		query.Set("limit", strconv.Itoa(o.limit+1)) // one more tells that there are more
	}
	var lines []object
	n, more := 0, false
pages:
	for {
		var page struct {
			Items []json.RawMessage
			Next  *string
		}
		if err := i.get("office/audit?"+query.Encode(), &page); err != nil {
			return jobFailed(err)
		}
		for _, raw := range page.Items {
			var a act
			if err := json.Unmarshal(raw, &a); err != nil {
				return fail(exitSoftware, "cannot read an act: %v", err)
			}
			if a.At < since-time.Minute.Milliseconds() { // an act that was done again is counted for a minute
				break pages
			}
			if until != 0 && a.At >= until || max(a.At, a.Last) < since {
				continue
			}
			if o.limit > 0 && n == o.limit {
				more = true
				break pages
			}
			if n++; o.asJSON {
				i.print("%s", raw)
				continue
			}
			lines = append(lines, a.line())
		}
		if page.Next == nil {
			break
		}
		query.Set("cursor", *page.Next)
	}
	if n == 0 {
		return noneFound{}
	}
	if o.asJSON {
		return nil
	}
	i.say("What was done to dead letters, the latest first ...")
	columns := fields("when", "who", "what", "object", "on", "times", "why", "detail")
	if i.severalVHosts(lines) {
		columns = slices.Insert(columns, 3, fields("vhost")...)
	}
	if err := i.aligned(columns, lines); err != nil {
		return err
	}
	if more {
		i.say("\nThere are more: --limit 0 shows all.")
	}
	return nil
}

// line is the act as a line of a table.
func (a *act) line() object {
	who, on, times := a.Who, "", ""
	if who == "" {
		who = "(the node)"
	}
	if a.Count > 0 {
		on = fmt.Sprint(a.Count)
	}
	if a.Times > 1 {
		times = fmt.Sprint(a.Times)
	}
	return object{
		"when": time.UnixMilli(max(a.At, a.Last)).Format(time.RFC3339), "who": who, "what": a.What, "vhost": a.VHost, "object": a.Object, "on": on, "times": times,
		"why": cutText(a.Why, 60), "detail": cutText(a.Detail, 80),
	}
}
