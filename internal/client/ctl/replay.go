package ctl

import (
	"errors"
	"maps"
	"net/http"
	"slices"
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
}

// stay counts the selected messages that were not replayed. Messages without a death history count
// only if nothing was replayed: a queue may hold other messages besides dead letters.
func (r *replayReport) stay() int {
	if r.Replayed == 0 {
		return r.Unroutable + r.Refused + r.NoOrigin
	}
	return r.Unroutable + r.Refused
}

func replayVerbs() []verb {
	var reason, from string
	var older, newer time.Duration
	var limit, rate int
	var dryRun bool
	return []verb{{
		name: "replay", short: "Sends dead letters back to where they were first published", min: 1, max: 1,
		long:  "Exit codes: 0: all selected messages were replayed, or none were selected, or it was a dry run; 75: some messages stay, as the answer says; other codes: it failed or was interrupted.",
		usage: "[--vhost <vhost>] [--reason <reason>] [--from-queue <queue>] [--older-than <age>] [--newer-than <age>] [--limit <n>] [--rate <n>] [--dry-run] <queue>",
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&reason, "reason", "", "only messages that died for this reason: rejected, expired, maxlen or delivery_limit")
			f.StringVar(&from, "from-queue", "", "only messages that died in this queue")
			f.DurationVar(&older, "older-than", 0, "only messages that died longer ago than this, such as 90s or 12h")
			f.DurationVar(&newer, "newer-than", 0, "only messages that died less long ago than this")
			f.IntVar(&limit, "limit", 0, "replay at most this many; 0 means all")
			f.IntVar(&rate, "rate", 0, "messages a second at most; 0 means no limit")
			f.BoolVar(&dryRun, "dry-run", false, "only report what would be done")
		},
		run: func(i *invocation) error {
			if older < 0 || newer < 0 || limit < 0 || rate < 0 {
				return badArgument("ages, --limit and --rate must not be negative")
			}
			if dryRun {
				i.say("Looking for dead letters in queue '%s' in vhost '%s', changing nothing ...", i.args[0], i.vhost)
			} else {
				i.say("Replaying dead letters of queue '%s' in vhost '%s' ...", i.args[0], i.vhost)
			}
			i.api.http.Timeout = i.limit(0) // no timeout unless --timeout was given
			report := replayReport{To: map[string]int{}, RefusedBy: map[string]int{}}
			err := i.post(path("queues", i.vhost, i.args[0], "replay"), object{
				"reason": reason, "queue": from, "older_than_ms": older.Milliseconds(), "newer_than_ms": newer.Milliseconds(),
				"limit": limit, "rate": rate, "dry_run": dryRun, "to": "origin",
			}, &report)
			if is(err, http.StatusNotFound) {
				return failPlainly(exitData, "Queue '%s' in vhost '%s' was not found", i.args[0], i.vhost)
			}
			if cut := new(failure); errors.As(err, &cut) && !dryRun { // no answer
				return &failure{cut.code, cut.text + "\nNo message is lost or duplicated: some have already moved to their targets, the others are still in the queue. Run the command again to continue."}
			}
			if err != nil {
				return explain(err)
			}
			if err := i.printReplay(&report, dryRun); err != nil {
				return err
			}
			if n := report.stay(); n > 0 && !dryRun {
				return fail(exitTempFail, "%d messages stay in queue '%s', %d were replayed", n, i.args[0], report.Replayed)
			}
			return nil
		},
	}}
}

func (i *invocation) printReplay(r *replayReport, dryRun bool) error {
	if i.formatter == "json" {
		text, err := encode(object{
			"examined": r.Examined, "matched": r.Matched, "replayed": r.Replayed, "unroutable": r.Unroutable,
			"refused": r.Refused, "no_origin": r.NoOrigin, "gone": r.Gone, "refused_by": r.RefusedBy, "refused_by_others": r.RefusedByOthers,
			"to": r.To, "to_others": r.ToOthers, "dry_run": dryRun,
		})
		if err != nil {
			return fail(exitSoftware, "%v", err)
		}
		i.print("%s", text)
		return nil
	}
	i.print("examined: %d, matched: %d, replayed: %d", r.Examined, r.Matched, r.Replayed)
	for _, to := range slices.Sorted(maps.Keys(r.To)) {
		i.print("  %6d  %s", r.To[to], to)
	}
	if r.ToOthers > 0 {
		i.print("  %6d  to other queues", r.ToOthers)
	}
	if r.Unroutable > 0 {
		i.print("  %6d  stay: their exchange is gone or routes to no queue", r.Unroutable)
	}
	for _, why := range slices.Sorted(maps.Keys(r.RefusedBy)) {
		i.print("  %6d  stay: %s", r.RefusedBy[why], why)
	}
	if r.RefusedByOthers > 0 {
		i.print("  %6d  stay: other queues are full or were deleted", r.RefusedByOthers)
	}
	if r.NoOrigin > 0 {
		i.print("  %6d  stay: they have no death history", r.NoOrigin)
	}
	if r.Gone > 0 {
		i.print("  %6d  were consumed by others in the meantime", r.Gone)
	}
	return nil
}
