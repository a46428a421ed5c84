package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// jobReport is a job as the API shows it.
type jobReport struct {
	ID                   json.Number
	Action, VHost, State string
	Made                 int64 `json:"made_ms"`
	CanaryUntil          int64 `json:"canary_until_ms"`
	Options              struct {
		Schedule int64 `json:"schedule_ms"`
		Then     string
	}
	Why, By, Reason, Rule     string
	Queues                    []string
	Planned, Examined         int
	Moved                     uint64
	Unroutable, Refused, Gone int
	NoOrigin                  int `json:"no_origin"`
	TooOften                  int `json:"too_often"`
	Outcomes                  struct {
		Waiting, Acknowledged, Expired, Dropped, Removed uint64
		DiedAgain                                        uint64 `json:"died_again"`
	}
}

// stay is how many letters the job has left.
func (j *jobReport) stay() int { return j.Unroutable + j.Refused + j.NoOrigin + j.TooOften }

func (j *jobReport) over() bool {
	return j.State == "done" || j.State == "cancelled" || j.State == "failed"
}

// line is the job in one line.
func (j *jobReport) line() string {
	text := fmt.Sprintf("job %s %s: %d of %d moved", j.ID, j.State, j.Moved, j.Planned)
	if j.Rule != "" {
		text = fmt.Sprintf("job %s %s: %d moved by rule '%s'", j.ID, j.State, j.Moved, j.Rule)
	}
	return text + j.outcomes() + j.note()
}

// outcomes are what became of the letters, each with a comma before it.
func (j *jobReport) outcomes() (text string) {
	o := &j.Outcomes
	waiting := o.Waiting
	if j.over() && (j.Action == "move" || j.Action == "discard" || j.Action == "restore" || j.Options.Then == "stay") {
		waiting = 0 // they lie where they were to lie
	}
	for _, n := range []struct {
		n    uint64
		what string
	}{
		{waiting, "waiting"}, {o.Acknowledged, "acknowledged"}, {o.DiedAgain, "died again"}, {o.Expired, "expired"}, {o.Dropped, "dropped"}, {o.Removed, "removed"},
		{uint64(j.Unroutable), "unroutable"}, {uint64(j.Refused), "refused"}, {uint64(j.NoOrigin), "without origin"}, {uint64(j.TooOften), "replayed too often"}, {uint64(j.Gone), "gone"},
	} {
		if n.n > 0 {
			text += fmt.Sprintf(", %d %s", n.n, n.what)
		}
	}
	return text
}

// note is what the job waits for, or why it stands, as a sentence after a full stop.
func (j *jobReport) note() (text string) {
	switch {
	case j.State == "planned":
		text += ". It begins at " + time.UnixMilli(j.Options.Schedule).Format(time.RFC3339)
	case j.State == "running" && j.CanaryUntil > 0:
		text += ". It waits for its first letters until " + time.UnixMilli(j.CanaryUntil).Format(time.TimeOnly) + ", and halts if none is consumed"
	}
	if j.Why != "" {
		text += ". " + j.Why
	}
	return text
}

// waitingPlace is a queue that delivers nothing now, or little.
type waitingPlace struct {
	Queue     string
	Consumers int
	Breaker   string
	Until     int64 `json:"until_ms"`
}

func (w *waitingPlace) String() string {
	why := "nobody consumes it"
	switch w.Breaker {
	case "open":
		why = "its breaker is open until " + time.UnixMilli(w.Until).Format(time.TimeOnly) + ", and the job halts before it sends there"
	case "trying":
		why = "its breaker tries: it delivers one message at a time"
	}
	if w.Breaker != "" && w.Consumers == 0 {
		why += "; nobody consumes it"
	}
	return fmt.Sprintf("queue '%s': letters wait there: %s", plain(w.Queue), why)
}

// jobPlan is what the API answers to a dry run.
type jobPlan struct {
	Token  string
	Count  int
	Routes []struct {
		Exchange   string
		RoutingKey string `json:"routing_key"`
		Queues     []string
		Letters    int
	}
	Unroutable []struct {
		Why     string
		Letters int
	}
	NoOrigin int `json:"no_origin"`
	TooOften int `json:"too_often"`
	Of       int
	Waits    []waitingPlace
	Diff     []jobChange
}

type jobOptions struct {
	values                             map[string]*string
	where                              []string
	toQueue, toExchange, key           string
	canary, because                    string
	rate, limit                        int
	orderBy, at                        string
	stagger                            time.Duration
	maxReplays                         uint64
	newest, dryRun, yes, watch, asJSON bool
}

func (o *jobOptions) flags(action string) func(f *pflag.FlagSet) {
	return func(f *pflag.FlagSet) {
		o.values = map[string]*string{}
		for _, filter := range searchFilters {
			o.values[filter.name] = f.String(filter.name, "", "only letters "+filter.help)
		}
		f.StringArrayVar(&o.where, "where", nil, "only letters with this header or property, as in 'dlq search'")
		f.IntVar(&o.rate, "rate", 0, "letters a second; 0 means as fast as it goes")
		f.IntVar(&o.limit, "limit", 0, "letters at most; 0 means all")
		f.BoolVar(&o.newest, "newest", false, "the newest letters first")
		f.StringVar(&o.orderBy, "order-by", "", "in the order of a header's value: header.NAME; with --newest the highest first")
		f.DurationVar(&o.stagger, "stagger", 0, "letters to one place go so far apart, such as 200ms")
		f.StringVar(&o.at, "at", "", "begin then: 2026-11-27T03:00:00Z, or after a time such as 2h")
		f.StringVar(&o.because, "because", "", "why: it stands with the job and in the audit log")
		f.BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
		f.BoolVar(&o.yes, "yes", false, "do it")
		f.BoolVar(&o.watch, "watch", false, "wait for the end, and show on a terminal how far it is")
		f.BoolVar(&o.asJSON, "json", false, "JSON, as the management API answers")
		switch action {
		case "replay":
			f.StringVar(&o.toQueue, "to-queue", "", "send them to this queue")
			f.StringVar(&o.toExchange, "to-exchange", "", "send them to this exchange; amq.default is the default exchange")
			f.StringVar(&o.key, "routing-key", "", "send them with this routing key")
			f.StringVar(&o.canary, "canary", "", "first:wait:percent, such as 100:30s:10%: move the first, wait, and halt if more of them died again, or if none was consumed by then")
			f.Uint64Var(&o.maxReplays, "max-replays", 3, "leave letters that were replayed so often; 0 means none")
		case "move":
			f.StringVar(&o.toQueue, "to-queue", "", "the queue to move them to")
		case "restore":
			f.StringVar(&o.toQueue, "to-queue", "", "put them into this queue")
		}
	}
}

// request is the body of the request for a job.
func (o *jobOptions) request(i *invocation, action string) (object, error) {
	filter := object{}
	for name, v := range o.values {
		if i.set(name) {
			filter[parameter(name)] = *v
		}
	}
	if g := *o.values["group"]; g != "" {
		found, err := i.findGroup(g)
		if err != nil {
			return nil, err
		}
		filter["group"] = found.ID
	}
	if len(o.where) > 0 {
		filter["where"] = o.where
	}
	queues := i.args
	if action == "restore" {
		queues = []string{archiveName}
	}
	body := object{"action": action, "vhost": i.vhost, "queues": queues, "filter": filter, "rate": o.rate, "limit": o.limit, "reason": o.because}
	if o.newest {
		body["order"] = "newest"
	}
	for flag, v := range map[string]any{"to-queue": o.toQueue, "to-exchange": o.toExchange, "routing-key": o.key, "max-replays": o.maxReplays} {
		if i.set(flag) {
			body[strings.ReplaceAll(flag, "-", "_")] = v
		}
	}
	if o.orderBy != "" {
		body["order_by"] = o.orderBy
	}
	if o.stagger > 0 {
		body["stagger_ms"] = o.stagger.Milliseconds()
	}
	if o.at != "" {
		at, err := parseMoment(o.at, time.Now())
		if err != nil {
			return nil, err
		}
		body["schedule_ms"] = at.UnixMilli()
	}
	if o.canary != "" {
		canary, err := parseCanary(o.canary)
		if err != nil {
			return nil, err
		}
		body["canary"] = canary
	}
	return body, nil
}

// parseMoment reads a moment, or a time from now.
func parseMoment(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	switch {
	case err != nil:
		return at, badArgument("--at '%s' must be a moment such as 2026-11-27T03:00:00Z, or a time from now such as 2h", s)
	case at.Before(now):
		return at, badArgument("--at '%s' is past; without it the job begins at once", s)
	}
	return at, nil
}

// parseCanary reads 100:30s:10%.
func parseCanary(s string) (object, error) {
	bad := badArgument("--canary '%s' must be first:wait:percent, such as 100:30s:10%%", s)
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return nil, bad
	}
	first, err := strconv.Atoi(parts[0])
	wait, err2 := time.ParseDuration(parts[1])
	percent, err3 := strconv.ParseFloat(strings.TrimSuffix(parts[2], "%"), 64)
	if err != nil || err2 != nil || err3 != nil || first < 1 || wait < 0 {
		return nil, bad
	}
	return object{"first": first, "wait_ms": wait.Milliseconds(), "percent": percent}, nil
}

const jobHelp = `It says how many letters it would move, and where to; with --yes it does that, as a job of the node: it goes on when this command ends, and after a restart.
Letters that come meanwhile are not moved. 'dlq jobs' shows what became of letters, 'dlq job ID pause|resume|cancel' changes a job.

Exit codes: 0: the job has begun, or with --watch is done, or it was a dry run; 1: no letter is selected; 64: --yes is missing; 65: a name or value is wrong; 75: with --watch: it is halted, or letters stay; 77: not allowed; 130: interrupted, and the job goes on; other codes: it failed.`

func dlqJobVerbs() (list []verb) {
	for _, a := range []struct{ action, short, long string }{
		{"replay", "Sends dead letters of queues back to where they were first published", "Their deaths are over: they have no death headers any more."},
		{"move", "Moves dead letters to another queue, with their deaths", "They can be sent back from there."},
		{"discard", "Moves dead letters to the queue bartleby.archive, which keeps them for 7 days", "They can be sent back from there."},
		{"restore", "Moves discarded letters back from bartleby.archive to where they were discarded", "They have their deaths. --to-queue puts them elsewhere."},
	} {
		o := &jobOptions{}
		least, usage := 1, "[--vhost <vhost>] [filters] [options] --dry-run | --yes <queue> ..."
		if a.action == "restore" {
			least, usage = 0, "[--vhost <vhost>] [filters] [options] --dry-run | --yes"
		}
		list = append(list, verb{
			name: a.action, short: a.short, long: a.long + "\n\n" + jobHelp, min: least, max: 100 * least, flags: o.flags(a.action),
			usage: usage, run: func(i *invocation) error { return i.doJob(o, a.action) },
		})
	}
	var asJSON, watch bool
	jsonFlag := func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "JSON, as the management API answers")
	}
	return append(list, verb{
		name: "jobs", short: "Lists jobs and what became of their letters", usage: "[--json]", flags: jsonFlag,
		run: func(i *invocation) error {
			if asJSON {
				return i.raw("office/jobs")
			}
			var jobs []jobReport
			if err := i.get("office/jobs", &jobs); err != nil {
				return err
			}
			for _, j := range jobs {
				of, why := "", ""
				if len(j.Queues) > 0 { // a rule is for any
					of = " of " + strings.Join(j.Queues, ", ")
				}
				if j.Reason != "" {
					why = ", because: " + j.Reason
				}
				i.print("%s", plain(fmt.Sprintf("%s  %s%s in %s: %s (begun by %s%s)", time.UnixMilli(j.Made).Format(time.RFC3339), j.Action, of, j.VHost, j.line(), j.By, why)))
			}
			return nil
		},
	}, verb{
		name: "job", short: "Shows a job, or pauses, resumes or cancels it", usage: "[--watch] [--json] <id> [pause|resume|cancel]", min: 1, max: 2,
		flags: func(f *pflag.FlagSet) {
			jsonFlag(f)
			f.BoolVar(&watch, "watch", false, "wait for its end, and show on a terminal how far it is")
		},
		run: func(i *invocation) error {
			at := path("office", "jobs", i.args[0])
			var j jobReport
			if len(i.args) == 2 {
				switch i.args[1] {
				case "pause", "resume", "cancel":
				default:
					return badArgument("'%s' must be pause, resume or cancel", i.args[1])
				}
				if err := i.post(at+"/"+i.args[1], object{}, &j); err != nil {
					return jobFailed(err)
				}
			} else if asJSON {
				return i.raw(at)
			} else if err := i.get(at, &j); err != nil {
				return jobFailed(err)
			}
			if watch {
				return i.watchJob(j.ID)
			}
			i.print("%s", printable(j.line()))
			return nil
		},
	})
}

// jobFailed explains what the API refuses.
func jobFailed(err error) error {
	if is(err, http.StatusNotFound) || is(err, http.StatusBadRequest) || is(err, http.StatusConflict) {
		return fail(exitData, "%v", err)
	}
	return explain(err)
}

// archiveName is the queue of discarded letters.
const archiveName = "bartleby.archive"

func (i *invocation) doJob(o *jobOptions, action string) error {
	body, err := o.request(i, action)
	if err != nil {
		return err
	}
	return i.runJob(o, action, body)
}

// runJob plans a job, says what it would do, and with --yes starts it.
func (i *invocation) runJob(o *jobOptions, action string, body object) error {
	i.api.http.Timeout = i.limit(0) // a dry run looks at every letter
	var plan jobPlan
	if err := i.post("office/jobs?dry_run=true", body, &plan); err != nil {
		return i.elsewhere(jobFailed(err))
	}
	for _, c := range plan.Diff {
		i.print("%s", c.line())
	}
	by := " by " + action
	if action == "move" {
		by = ""
	}
	i.print("%d of %s would be moved%s.", plan.Count, counted(plan.Of, "message"), by)
	routed := 0
	for _, r := range plan.Routes {
		routed += r.Letters
	}
	if routed > plan.Count {
		i.print("Of all that are selected, --limit takes %d:", plan.Count)
	}
	for _, r := range plan.Routes {
		i.print("  %d  exchange '%s' key '%s' -> %s", r.Letters, plain(r.Exchange), plain(r.RoutingKey), plain(strings.Join(r.Queues, ", ")))
	}
	for n := range plan.Waits {
		i.print("  %s", plain(plan.Waits[n].String()))
	}
	if body["canary"] != nil && plan.Count > 0 {
		i.print("The job halts after its first letters if too many of them die again, or if none of them is consumed within the wait.")
	}
	for _, u := range plan.Unroutable {
		i.print("  %d  stay: %s", u.Letters, plain(u.Why))
	}
	if plan.NoOrigin > 0 {
		i.print("  %d  stay: nobody knows where they were first published", plan.NoOrigin)
	}
	if plan.TooOften > 0 {
		i.print("  %d  stay: they were replayed too often", plan.TooOften)
	}
	switch {
	case plan.Count == 0:
		return noneFound{}
	case o.dryRun:
		return nil
	case !o.yes:
		return fail(exitUsage, "Nothing was moved. Run the command again with --yes to do it")
	}
	body["token"], body["count"] = plan.Token, plan.Count
	var j jobReport
	if err := i.post("office/jobs", body, &j); err != nil {
		return jobFailed(err)
	}
	if o.watch {
		return i.watchJob(j.ID)
	}
	i.print("%s", printable(j.line()))
	return nil
}

// watchJob waits until a job ends or halts, and shows how far it is on a terminal.
func (i *invocation) watchJob(id json.Number) error {
	var stop context.CancelFunc
	i.ctx, stop = signal.NotifyContext(i.ctx, os.Interrupt)
	defer stop()
	line := i.newProgress()
	defer line.clear()
	for {
		var j jobReport
		if err := i.get(path("office", "jobs", id.String()), &j); err != nil {
			line.clear()
			if i.ctx.Err() != nil {
				return failPlainly(exitInterrupted, "Interrupted. The job goes on: 'dlq job %s --watch' shows it, 'dlq job %s cancel' ends it.", id, id)
			}
			return jobFailed(err)
		}
		if j.over() || j.State == "halted" || j.State == "paused" {
			line.clear()
			i.print("%s", printable(j.line()))
		}
		switch {
		case j.State == "halted" || j.State == "paused" || j.State == "failed":
			return fail(exitTempFail, "Job %s is %s", id, j.State)
		case j.over() && j.stay() > 0:
			return fail(exitTempFail, "Of %s so many stay: %d", counted(uint64(j.stay())+j.Moved, "letter"), j.stay())
		case j.over():
			return nil
		}
		j.draw(line, time.Now())
		select {
		case <-time.After(500 * time.Millisecond):
		case <-i.ctx.Done():
		}
	}
}
