package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

const watchHelp = `One line for each thing that happens to dead letters, until an interrupt (ctrl-c) ends it: a new group of dead letters, a group that grows, a queue that comes to the threshold of its virtual host or doubles it, a job that begins, moves letters or ends, and messages that the node drops.
What is there already is not told. It asks the node every --interval, and says what differs. It goes on when the node is restarted. With --json each line is an object with "event", named as the node's events are where there is such a one.

Exit codes: 0: it was interrupted; 65: a name is wrong; 69: the node does not answer at the beginning; 77: not allowed; other codes: it failed.`

// Bounds of what a watch asks for and remembers.
const (
	watchPage   = 1000 // groups, or entries of the ledger, of one request
	watchPages  = 10   // requests of one look
	watchGroups = 20_000
	// What came within so long before the last group that is known may be seen late: the node counts in seconds.
	watchSlack = 10 * time.Second
	// How long the thresholds of virtual hosts are taken to be as they were.
	watchThresholds = time.Minute
)

// watchVerb is the verb that says what happens.
func watchVerb() verb {
	var asJSON bool
	var every time.Duration
	return verb{
		name: "watch", short: "Says what happens to dead letters, as it happens", max: 100, usage: "[--vhost <vhost>] [--interval <time>] [--json] [<queue> ...]", long: watchHelp,
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&asJSON, "json", false, "a line of JSON for each thing")
			f.DurationVar(&every, "interval", 2*time.Second, "how often to ask, such as 500ms")
		},
		run: func(i *invocation) error {
			if every < 100*time.Millisecond || every > time.Hour {
				return badArgument("--interval must be from 100ms to 1h")
			}
			w := &watcher{invocation: i, asJSON: asJSON, groups: map[watchKey]watchedGroup{}, heights: map[watchKey]int{}, thresholds: map[string]int{}, jobs: map[string]jobReport{}, drops: map[watchKey]watchedDrop{}}
			return w.run(every)
		},
	}
}

// watcher knows what it has seen of the office.
type watcher struct {
	*invocation
	asJSON bool
	told   bool // the first look is over: what differs from now on is told

	groups map[watchKey]watchedGroup
	latest int64 // when the letter died that died last, of all groups
	began  int64 // latest at the first look

	heights    map[watchKey]int // of queues, as far as the threshold and its doublings are concerned
	thresholds map[string]int   // of virtual hosts
	asked      time.Time        // when thresholds were asked for
	noTags     bool             // the user may not see them, and was told so

	jobs    map[string]jobReport
	drops   map[watchKey]watchedDrop // the entries that may still grow
	dropped int64                    // when the latest drop was
}

type watchedDrop struct {
	count uint64
	last  int64
}

// watchKey names a group, a queue or a drop: by virtual host, queue and id, as far as it has them.
type watchKey struct{ vhost, queue, id string }

type watchedGroup struct {
	letters int
	last    int64
}

// watchEvent is a line of JSON.
type watchEvent struct {
	Time       int64           `json:"time_ms"`
	Event      string          `json:"event"`
	VHost      string          `json:"vhost,omitempty"`
	Queue      string          `json:"queue,omitempty"`
	Group      string          `json:"group,omitempty"`
	Source     string          `json:"source,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	ErrorClass string          `json:"error_class,omitempty"`
	Error      string          `json:"error,omitempty"`
	Type       string          `json:"type,omitempty"`
	Letters    int             `json:"letters,omitempty"`
	Arrived    int             `json:"arrived,omitempty"` // at least
	Threshold  int             `json:"threshold,omitempty"`
	Job        json.RawMessage `json:"job,omitempty"`
	Drop       json.RawMessage `json:"drop,omitempty"`
	Text       string          `json:"text,omitempty"`
}

// run looks until it is interrupted.
func (w *watcher) run(every time.Duration) error {
	var stop context.CancelFunc
	w.ctx, stop = signal.NotifyContext(w.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	away := false
	for {
		err := w.look()
		switch {
		case w.ctx.Err() != nil:
			return nil
		case err == nil:
			if away {
				w.node("node.back", "The node is back.")
			}
			away = false
		case !w.told || !isAway(err):
			return err
		case !away:
			away = true
			w.node("node.away", "The node does not answer; what happens is told when it does again. "+plainError(err))
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			return nil
		}
	}
}

// isAway says whether the node does not answer, or not yet.
func isAway(err error) bool {
	var f *failure
	var e *apiError
	return errors.As(err, &f) && (f.code == exitUnavailable || f.code == exitTempFail) || errors.As(err, &e) && e.status >= http.StatusInternalServerError
}

// plainError is an error in one line.
func plainError(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "Error:"), "\n")
	return strings.TrimSpace(strings.ReplaceAll(text, "\n", " "))
}

// node tells of the node itself: beside the lines, where a program does not read them.
func (w *watcher) node(event, text string) {
	if w.asJSON {
		w.tell(&watchEvent{Event: event, Text: text}, "")
		return
	}
	if !w.quiet && !w.silent {
		_, _ = fmt.Fprintf(w.errs, "%s  %s\n", time.Now().Format(time.RFC3339), printable(text))
	}
}

// tell prints a line.
func (w *watcher) tell(e *watchEvent, format string, args ...any) {
	now := time.Now()
	if !w.asJSON {
		w.print("%s  %s", now.Format(time.RFC3339), plain(fmt.Sprintf(format, args...)))
		return
	}
	e.Time = now.UnixMilli()
	text, err := json.Marshal(e)
	if err != nil {
		return // impossible: it has texts, numbers and what was JSON
	}
	w.print("%s", text)
}

// look asks for everything once, and tells what differs.
func (w *watcher) look() error {
	total, groups, err := w.lookAtGroups()
	if err != nil {
		return err
	}
	for _, f := range []func() error{w.lookAtQueues, w.lookAtJobs, w.lookAtDrops} {
		if err := f(); err != nil {
			return err
		}
	}
	if !w.told && !w.asJSON {
		w.say("%s in %s now; an interrupt ends the watch ...", counted(total, "dead letter"), counted(groups, "group"))
	}
	w.told = true
	return nil
}

// lookAtGroups reads the groups whose letters died last, until those that cannot have changed.
func (w *watcher) lookAtGroups() (letters, groups int, err error) {
	of := [][]string{nil}
	if len(w.args) > 0 {
		of = nil
		for _, queue := range w.args {
			of = append(of, []string{queue})
		}
	}
	latest := w.latest
	for _, queue := range of {
		at, query := w.officePath("groups", queue...), url.Values{"sort": {"last"}, "limit": {strconv.Itoa(watchPage)}}
		for n := range watchPages {
			page, err := w.invocation.groups(at, query)
			if err != nil {
				return 0, 0, err
			}
			if n == 0 {
				letters, groups = letters+page.Letters, groups+page.Total
			}
			for k := range page.Items {
				w.group(&page.Items[k], strings.Join(queue, ""))
				latest = max(latest, page.Items[k].Last)
			}
			if page.Next == nil || w.told && len(page.Items) > 0 && page.Items[len(page.Items)-1].Last < w.latest-watchSlack.Milliseconds() {
				break
			}
			query.Set("cursor", *page.Next)
		}
	}
	if w.latest = latest; !w.told {
		w.began = latest
	}
	w.forgetGroups()
	return letters, groups, nil
}

// group compares a group with what is known of it. queue is the one that was asked for, "" for all.
func (w *watcher) group(g *letterGroup, queue string) {
	key := watchKey{g.VHost, queue, g.ID}
	before, known := w.groups[key]
	w.groups[key] = watchedGroup{g.Letters, g.Last}
	if !w.told || known && g.Letters <= before.letters && g.Last <= before.last || !known && g.Last < w.latest-watchSlack.Milliseconds() {
		return
	}
	where := cmp.Or(queue, g.Sample.Queue)
	e := &watchEvent{
		Event: "letter.group.grown", VHost: g.VHost, Queue: where, Group: g.ID, Source: g.Source, Reason: g.Reason, ErrorClass: g.ErrorClass, Error: g.Error, Type: g.Type,
		Letters: g.Letters, Arrived: 1,
	}
	what := "grows"
	switch {
	case known:
		e.Arrived = max(1, g.Letters-before.letters)
	case g.First >= w.began:
		e.Event, what, e.Arrived = "letter.group.created", "new", g.Letters
	}
	words := g.cause()
	if words == "" {
		words = "no cause given"
	}
	w.tell(e, "%-9s  %s: +%d, %s of group %s, %s (%s)", what, w.named(g.VHost, where), e.Arrived, counted(g.Letters, "letter"), g.ID[:min(len(g.ID), 6)], words, diedHow(g.Reason, g.Source))
}

// counted is a number of things.
func counted[N int | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// named is a queue with its virtual host, unless one was chosen.
func (w *watcher) named(vhost, queue string) string {
	if w.set("vhost") || len(w.args) > 0 || vhost == "/" {
		return queue
	}
	return vhost + " " + queue
}

// forgetGroups forgets those that have had no letter for longest, if they are too many.
func (w *watcher) forgetGroups() {
	if len(w.groups) <= watchGroups {
		return
	}
	var lasts []int64
	for _, g := range w.groups {
		lasts = append(lasts, g.last)
	}
	slices.Sort(lasts)
	oldest := lasts[len(lasts)/2]
	for k, g := range w.groups {
		if g.last < oldest {
			delete(w.groups, k)
		}
	}
	if len(w.groups) > watchGroups { // they died in one second
		clear(w.groups)
	}
}

// lookAtQueues tells of queues that have come to the threshold of their virtual host, or doubled it: as the node's event letter.threshold does.
func (w *watcher) lookAtQueues() error {
	var rows []struct {
		VHost, Name     string
		Letters, Others int
	}
	if err := w.get(w.officePath("queues"), &rows); err != nil {
		return w.inVHost(err)
	}
	if time.Since(w.asked) > watchThresholds {
		clear(w.thresholds)
		w.asked = time.Now()
	}
	heights := map[watchKey]int{}
	for _, q := range rows {
		if len(w.args) > 0 && (q.VHost != w.vhost || !slices.Contains(w.args, q.Name)) || q.Name == archiveName || q.Letters == 0 {
			continue
		}
		threshold, err := w.threshold(q.VHost)
		if err != nil {
			return err
		}
		key, n := watchKey{q.VHost, q.Name, ""}, q.Letters+q.Others
		height := heightOf(n, threshold)
		switch before := w.heights[key]; {
		case height > before && w.told:
			w.tell(&watchEvent{Event: "letter.threshold", VHost: q.VHost, Queue: q.Name, Letters: n, Threshold: threshold},
				"%-9s  %s: %s, threshold %d", "threshold", w.named(q.VHost, q.Name), counted(n, "message"), threshold)
		case height < before && heightOf(2*n, threshold) >= before: // it must fall to the half before it is news again
			height = before
		}
		if height > 0 {
			heights[key] = height
		}
	}
	w.heights = heights
	return nil
}

// heightOf is 0 below the threshold, then one for each doubling. A threshold of 0 is none.
func heightOf(n, threshold int) int {
	if threshold == 0 || n < threshold {
		return 0
	}
	return bits.Len(uint(n / threshold))
}

// threshold is that of a virtual host; 0 if it has none, or the user may not see it.
func (w *watcher) threshold(vhost string) (int, error) {
	if n, known := w.thresholds[vhost]; known || w.noTags {
		return n, nil
	}
	var b struct{ Threshold int }
	err := w.get(path("office", "rules", vhost), &b)
	switch {
	case is(err, http.StatusForbidden) || is(err, http.StatusUnauthorized):
		w.noTags = true
		if !w.quiet && !w.silent {
			_, _ = fmt.Fprintln(w.errs, "Thresholds are not told of: to see them one needs the tag policymaker.")
		}
	case is(err, http.StatusNotFound): // the virtual host was deleted just now
	case err != nil:
		return 0, explain(err)
	}
	w.thresholds[vhost] = b.Threshold
	return b.Threshold, nil
}

// lookAtJobs tells of jobs that are new, have moved letters, or are in another state.
func (w *watcher) lookAtJobs() error {
	var raw []json.RawMessage
	if err := w.get("office/jobs", &raw); err != nil {
		return explain(err)
	}
	jobs := map[string]jobReport{}
	for n := range slices.Backward(raw) { // the oldest first, as they happened
		var j jobReport
		if err := json.Unmarshal(raw[n], &j); err != nil {
			return fail(exitSoftware, "cannot read a job: %v", err)
		}
		if w.set("vhost") && j.VHost != w.vhost || len(w.args) > 0 && (j.VHost != w.vhost || !slices.ContainsFunc(j.Queues, func(q string) bool { return slices.Contains(w.args, q) })) {
			continue
		}
		id := j.ID.String()
		before, known := w.jobs[id]
		jobs[id] = j
		if !w.told || known && before.line() == j.line() {
			continue
		}
		event := "job.progress"
		switch {
		case !known && j.State == "running":
			event = "job.started"
		case before.State != j.State:
			event = "job." + j.State
		}
		what := j.Action
		if len(j.Queues) > 0 {
			what += " of " + strings.Join(j.Queues, ", ")
		}
		w.tell(&watchEvent{Event: event, VHost: j.VHost, Job: raw[n]}, "%-9s  %s: %s", "job", what, j.line())
	}
	w.jobs = jobs
	return nil
}

// lookAtDrops tells of messages that the node has dropped. The ledger has what was dropped last first; an entry counts for a minute.
func (w *watcher) lookAtDrops() error {
	query := url.Values{"limit": {strconv.Itoa(watchPage)}}
	type dropped struct {
		VHost, Queue, Reason, Why, Exchange string
		ID, Count                           uint64
		Last                                int64    `json:"last_ms"`
		Keys                                []string `json:"routing_keys"`
		raw                                 json.RawMessage
	}
	var found []dropped
	latest := w.dropped
pages:
	for range watchPages {
		var page struct {
			Items []json.RawMessage
			Next  *string
		}
		if err := w.get(w.officePath("drops")+"?"+query.Encode(), &page); err != nil {
			return w.inVHost(err)
		}
		for _, raw := range page.Items {
			d := dropped{raw: raw}
			if err := json.Unmarshal(raw, &d); err != nil {
				return fail(exitSoftware, "cannot read an entry of the ledger of drops: %v", err)
			}
			if d.Last < w.dropped-watchSlack.Milliseconds() {
				break pages
			}
			key := watchKey{d.VHost, d.Queue, strconv.FormatUint(d.ID, 10)}
			before := w.drops[key].count
			w.drops[key], latest = watchedDrop{d.Count, d.Last}, max(latest, d.Last)
			if w.told && d.Count > before && (len(w.args) == 0 || d.VHost == w.vhost && slices.Contains(w.args, d.Queue)) {
				d.Count -= before
				found = append(found, d)
			}
		}
		if page.Next == nil || !w.told { // what is older counts no more, or is of no interest
			break
		}
		query.Set("cursor", *page.Next)
	}
	w.dropped = latest
	for k, d := range w.drops {
		if d.last < latest-2*time.Minute.Milliseconds() || len(w.drops) > 2*watchPage*watchPages {
			delete(w.drops, k)
		}
	}
	for _, d := range slices.Backward(found) {
		from := ""
		if d.Queue != "" {
			from = w.named(d.VHost, d.Queue) + ": "
		}
		how := d.Why
		if d.Reason != "" {
			how = d.Reason + ", " + how
		}
		if d.Exchange != "" || len(d.Keys) > 0 {
			how += fmt.Sprintf(", exchange '%s' key '%s'", d.Exchange, strings.Join(d.Keys, " "))
		}
		w.tell(&watchEvent{Event: "drop.recorded", VHost: d.VHost, Queue: d.Queue, Arrived: int(min(d.Count, 1<<31)), Drop: d.raw}, "%-9s  %s%s (%s)", "dropped", from, counted(d.Count, "message"), how)
	}
	return nil
}
