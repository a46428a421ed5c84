package ctl

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// replayReport is the API's answer.
type replayReport struct {
	Examined, Matched, Replayed, Unroutable, Refused int
	NoOrigin                                         int `json:"no_origin"`
	Gone                                             int
	To                                               map[string]int
	ToOthers                                         int            `json:"to_others"`
	RefusedBy                                        map[string]int `json:"refused_by"`
	RefusedByOthers                                  int            `json:"refused_by_others"`
	UnroutableBy                                     map[string]int `json:"unroutable_by"`
	UnroutableByOthers                               int            `json:"unroutable_by_others"`
	PassedBy                                         map[string]int `json:"passed_by"`
	PassedByOthers                                   int            `json:"passed_by_others"`
}

// stay counts the selected messages that were not replayed. Messages without a death history count
// only if nothing was replayed: a queue may hold other messages besides dead letters.
func (r *replayReport) stay() int {
	if r.Replayed == 0 {
		return r.Unroutable + r.Refused + r.NoOrigin
	}
	return r.Unroutable + r.Refused
}

// allStay says whether a dry run has found that every selected message would stay.
func (r *replayReport) allStay() bool { return len(r.To) == 0 && r.ToOthers == 0 && r.stay() > 0 }

// replayOptions are those of the verb.
type replayOptions struct {
	reason, from, id, replayed string
	headers                    []string
	older, newer               age
	toQueue, toExchange, key   string
	limit, rate                int
	dryRun                     bool
}

func (o *replayOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.reason, "reason", "", "only messages that died for this reason: rejected, expired, maxlen or delivery_limit")
	f.StringVar(&o.from, "from-queue", "", "only messages that died in this queue")
	f.StringVar(&o.id, "message-id", "", "only messages with this message id")
	f.StringArrayVar(&o.headers, "header", nil, "only messages with this header, as NAME=VALUE; given several times, all must be there")
	f.Var(&o.older, "older-than", "only messages that died longer ago than this, such as 90s, 12h or 1d")
	f.Var(&o.newer, "newer-than", "only messages that died less long ago than this")
	f.StringVar(&o.replayed, "replayed", "", "yes: only messages that a replay has sent back before; no: only messages that none has")
	f.StringVar(&o.toQueue, "to-queue", "", "send them to this queue, not to where they were first published")
	f.StringVar(&o.toExchange, "to-exchange", "", "send them to this exchange, with their first routing keys or that of --routing-key")
	f.StringVar(&o.key, "routing-key", "", "send them with this routing key, to their first exchange or that of --to-exchange")
	f.IntVar(&o.limit, "limit", 0, "replay at most this many; 0 means all")
	f.IntVar(&o.rate, "rate", 0, "messages a second at most; 0 means no limit")
	f.BoolVar(&o.dryRun, "dry-run", false, "only report what would be done, and where the messages would go")
}

const replayUsage = "[--vhost <vhost>] [--reason <reason>] [--from-queue <queue>] [--message-id <id>] [--header <name>=<value>] [--older-than <age>] [--newer-than <age>] [--replayed yes|no] " +
	"[--to-queue <queue> | [--to-exchange <exchange>] [--routing-key <key>]] [--limit <n>] [--rate <n>] [--dry-run] <queue>"

const replayHelp = `Each message moves to the exchange it was first published to, with its first routing keys, or to where the options say. It is
afterwards at all its targets or still in the queue, never lost and never doubled. A replay removes the headers of its deaths (x-death, x-first-death-*, x-last-death-*) and its
expiration, and adds x-replayed-from, the name of the queue. All other headers, properties and the body stay as they are.

Needed permissions: read on the queue; write on the exchange of the target, which is amq.default for --to-queue.

Exit codes: 0: all selected messages were replayed, or none were selected, or it was a dry run in which something would be replayed; 65: a name or value is wrong; 75: some messages stay, in a dry run all, as the answer says; 77: not allowed; 130: interrupted; other codes: it failed.`

// request is the body of the API's request.
func (o *replayOptions) request(set func(string) bool) (object, error) {
	if o.limit < 0 || o.rate < 0 {
		return nil, badArgument("--limit and --rate must not be negative")
	}
	if set("newer-than") && o.newer == 0 {
		return nil, badArgument("--newer-than must be more than 0")
	}
	for _, name := range []string{"reason", "from-queue", "message-id", "to-queue"} {
		if value := map[string]string{"reason": o.reason, "from-queue": o.from, "message-id": o.id, "to-queue": o.toQueue}[name]; set(name) && value == "" {
			return nil, badArgument("--%s must not be empty", name) // such as of a variable that is not set
		}
	}
	body := object{
		"reason": o.reason, "queue": o.from, "older_than_ms": o.older.milliseconds(), "newer_than_ms": o.newer.milliseconds(),
		"limit": o.limit, "rate": o.rate, "dry_run": o.dryRun, "message_id": o.id,
	}
	switch o.replayed {
	case "yes", "no":
		body["replayed"] = o.replayed == "yes"
	case "":
	default:
		return nil, badArgument("--replayed must be yes or no")
	}
	if len(o.headers) > 0 {
		headers := object{}
		for _, h := range o.headers {
			name, value, ok := strings.Cut(h, "=")
			if _, twice := headers[name]; !ok || name == "" || twice {
				return nil, badArgument("--header %s: must be NAME=VALUE, each name once", h)
			}
			headers[name] = value
		}
		body["headers"] = headers
	}
	if set("to-queue") && (set("to-exchange") || set("routing-key")) {
		return nil, badArgument("--to-queue cannot be combined with --to-exchange or --routing-key")
	}
	for key, flag := range map[string]struct{ name, value string }{
		"to_queue": {"to-queue", o.toQueue}, "to_exchange": {"to-exchange", o.toExchange}, "routing_key": {"routing-key", o.key},
	} {
		if set(flag.name) {
			body[key] = flag.value
		}
	}
	return body, nil
}

func replayVerbs() []verb {
	var o replayOptions
	return []verb{{
		name: "replay", short: "Sends dead letters back to where they were first published, or elsewhere", min: 1, max: 1,
		long: replayHelp, usage: replayUsage, flags: o.flags,
		run: func(i *invocation) error {
			body, err := o.request(i.set)
			if err != nil {
				return err
			}
			if o.dryRun {
				i.say("Looking for dead letters in queue '%s' in vhost '%s', changing nothing ...", i.args[0], i.vhost)
			} else {
				i.say("Replaying dead letters of queue '%s' in vhost '%s' ...", i.args[0], i.vhost)
			}
			i.api.http.Timeout = i.limit(0) // no timeout unless --timeout was given
			var stop context.CancelFunc
			i.ctx, stop = signal.NotifyContext(i.ctx, os.Interrupt)
			defer stop()
			report := replayReport{To: map[string]int{}, RefusedBy: map[string]int{}, UnroutableBy: map[string]int{}, PassedBy: map[string]int{}}
			if err := i.post(path("queues", i.vhost, i.args[0], "replay"), body, &report); err != nil {
				return i.replayFailed(err, o.dryRun)
			}
			if err := i.printReplay(&report, o.dryRun); err != nil {
				return err
			}
			if o.dryRun && report.allStay() {
				return fail(exitTempFail, "All %d messages would stay in queue '%s'", report.stay(), i.args[0])
			}
			if n := report.stay(); n > 0 && !o.dryRun {
				return fail(exitTempFail, "%d messages stay in queue '%s', %d were replayed", n, i.args[0], report.Replayed)
			}
			if o.from != "" && report.Matched == 0 && is(i.get(path("queues", i.vhost, o.from), nil), http.StatusNotFound) {
				return fail(exitData, "No message was selected, and no queue has the name '%s'", o.from)
			}
			return nil
		},
	}}
}

// replayFailed explains a replay that has no result.
func (i *invocation) replayFailed(err error, dryRun bool) error {
	const others = "\nNo message is lost or duplicated: some may have moved to their targets, the others are still in the queue. Run the command again to continue."
	switch cut := new(failure); {
	case is(err, http.StatusNotFound):
		return failPlainly(exitData, "Queue '%s' in vhost '%s' was not found", i.args[0], i.vhost)
	case is(err, http.StatusBadRequest):
		return fail(exitData, "%v", err)
	case i.ctx.Err() != nil && dryRun:
		return failPlainly(exitInterrupted, "Interrupted.")
	case i.ctx.Err() != nil:
		return failPlainly(exitInterrupted, "Interrupted. The node stops the replay; its audit log says how many messages have moved."+others)
	case errors.As(err, &cut) && !dryRun: // no answer
		return &failure{cut.code, cut.text + others}
	}
	return explain(err)
}

// age is a time.Duration that may begin with days: 1d, 2d12h.
type age time.Duration

func (a *age) milliseconds() int64 { return time.Duration(*a).Milliseconds() }

// String is what pflag shows as the default.
func (a *age) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

// Type is what pflag shows as the type.
func (*age) Type() string { return "age" }

// Set reads an age.
func (a *age) Set(text string) error {
	const day = 24 * time.Hour
	var days int64
	rest := text
	if number, after, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n > uint64(math.MaxInt64/day)-1 {
			return errAge
		}
		if days, rest = int64(n), after; rest == "" {
			rest = "0s"
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || d > math.MaxInt64-time.Duration(days)*day {
		return errAge
	}
	*a = age(time.Duration(days)*day + d)
	return nil
}

var errAge = errors.New("must be an age such as 90s, 12h, 1d or 2d12h")

func (i *invocation) printReplay(r *replayReport, dryRun bool) error {
	if i.formatter == "json" {
		text, err := encode(object{
			"examined": r.Examined, "matched": r.Matched, "replayed": r.Replayed, "unroutable": r.Unroutable,
			"refused": r.Refused, "no_origin": r.NoOrigin, "gone": r.Gone, "refused_by": r.RefusedBy, "refused_by_others": r.RefusedByOthers,
			"unroutable_by": r.UnroutableBy, "unroutable_by_others": r.UnroutableByOthers, "passed_by": r.PassedBy, "passed_by_others": r.PassedByOthers,
			"to": r.To, "to_others": r.ToOthers, "dry_run": dryRun,
		})
		if err != nil {
			return fail(exitSoftware, "%v", err)
		}
		i.print("%s", text)
		return nil
	}
	i.print("examined: %d, matched: %d, replayed: %d", r.Examined, r.Matched, r.Replayed)
	for _, part := range []struct {
		by          map[string]int
		others      int
		form, other string
	}{
		{r.To, r.ToOthers, "%s", "to other queues"},
		{r.UnroutableBy, r.UnroutableByOthers, "stay: %s", "stay: other exchanges are gone or route to no queue"},
		{r.RefusedBy, r.RefusedByOthers, "stay: %s", "stay: other queues are full or were deleted"},
		{r.PassedBy, r.PassedByOthers, "not selected: %s", "not selected: for other reasons or in other queues"},
	} {
		for _, what := range slices.Sorted(maps.Keys(part.by)) {
			i.print("  %6d  "+part.form, part.by[what], what)
		}
		if part.others > 0 {
			i.print("  %6d  %s", part.others, part.other)
		}
	}
	if r.NoOrigin > 0 {
		i.print("  %6d  stay: they have no death history", r.NoOrigin)
	}
	if r.Gone > 0 {
		i.print("  %6d  were consumed by others in the meantime", r.Gone)
	}
	return nil
}
