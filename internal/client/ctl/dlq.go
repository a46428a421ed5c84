package ctl

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const dlqHelp = `Shows dead letters without touching them: queues with letters, groups of letters that died alike, and single letters.

  bartleby dlq ls                       which queues hold letters
  bartleby dlq groups                   why they died, the largest group first
  bartleby dlq show GROUP               one letter of a group: its cause, its way, and where a replay would put it
  bartleby dlq search QUEUE --error .   the letters that filters select
  bartleby dlq replay QUEUE --dry-run   what sending them back would do; also move, discard, restore, edit
  bartleby dlq export QUEUE             all of them, one a line, for 'dlq import'
  bartleby dlq breaker QUEUE            whether its breaker is open; also closes it
  bartleby dlq watch                    what happens, as it happens
  bartleby dlq audit                    who did what, and why; 'dlq masks': what is hidden`

// dlqCommand is the command with the verbs of the Dead Letter Office.
func dlqCommand(o *options) *cobra.Command {
	return family(o, "dlq", "Shows dead letters, and sends them back", dlqHelp, slices.Concat(dlqReadVerbs(), []verb{watchVerb(), auditVerb(), masksVerb()}, dlqJobVerbs(), dlqTransferVerbs(), dlqBreakerVerbs()))
}

// letterGroup is a group as the API shows it.
type letterGroup struct {
	ID, VHost, Source, Reason, Error, Type, State, Owner, Note string
	ErrorClass                                                 string `json:"error_class"`
	Letters                                                    int
	First                                                      int64 `json:"first_ms"`
	Last                                                       int64 `json:"last_ms"`
	Queues                                                     []struct {
		Name    string
		Letters int
	}
	Sample struct{ Queue, ID string }
}

// groupPage is the API's answer.
type groupPage struct {
	Items                         []letterGroup
	Next                          *string
	Total, Letters, Read, Entries int
	Reading                       bool
}

// letterRow is a letter of a list.
type letterRow struct {
	ID, Queue, State, Reason, Source, Exchange, Error, Type, Group, Preview string
	ErrorClass                                                              string   `json:"error_class"`
	MessageID                                                               string   `json:"message_id"`
	Keys                                                                    []string `json:"routing_keys"`
	Died                                                                    int64    `json:"died_ms"`
	TimesDied                                                               uint64   `json:"times_died"`
	Size                                                                    int
	Replays                                                                 uint64
	Lost                                                                    string
	Job                                                                     *string
}

func dlqReadVerbs() []verb {
	var asJSON, reveal bool
	jsonFlag := func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "JSON, as the management API answers")
	}
	var g groupOptions
	var s searchOptions
	return []verb{
		{
			name: "ls", short: "Lists the queues that hold dead letters", usage: "[--vhost <vhost>] [--json]", flags: jsonFlag,
			long: "One line a queue: how many letters it holds, how long ago the oldest died, how many came lately, and where they died. Without --vhost it shows all virtual hosts.",
			run:  func(i *invocation) error { return i.listLetterQueues(asJSON) },
		},
		{
			name: "retries", short: "Lists the queues in which messages wait for a retry", usage: "[--vhost <vhost>] [--json]", flags: jsonFlag,
			long: "One line a queue: how many messages wait for a delayed retry, in how long the first comes back and all of them, and for how long the first is overdue. Without --vhost it shows all virtual hosts.",
			run:  func(i *invocation) error { return i.listRetries(asJSON) },
		},
		{
			name: "groups", short: "Counts dead letters by cause", max: 1, usage: "[--vhost <vhost>] [--sort letters|last|first|source] [--limit <n>] [--state <state>] [--source <queue>] [--reason <reason>] [--class <class>] [--text <text>] [--reveal] [--json] [<queue>]",
			long: "A group is letters that died in the same queue, for the same reason, of the same error. Without --vhost it shows all virtual hosts; with a queue, only the letters in it.\n\n" +
				"The first characters of a group's id are enough in other commands, as long as no other group begins with them.",
			flags: func(f *pflag.FlagSet) { jsonFlag(f); g.flags(f) },
			run:   func(i *invocation) error { return i.listGroups(&g, asJSON) },
		},
		{
			name: "show", short: "Shows one dead letter", min: 1, max: 2, usage: "[--vhost <vhost>] [--reveal] [--json] <group> | <queue> <id>",
			flags: func(f *pflag.FlagSet) { jsonFlag(f); revealFlag(f, &reveal) },
			long:  "Shows the letter of a queue with an id that 'dlq search' has shown; or, with the id of a group, the one of its letters that died last.",
			run:   func(i *invocation) error { return i.showLetter(asJSON, reveal) },
		},
		{
			name: "search", short: "Lists the dead letters of a queue that filters select", min: 1, max: 1, usage: searchUsage, long: searchHelp,
			flags: func(f *pflag.FlagSet) { jsonFlag(f); s.flags(f) },
			run:   func(i *invocation) error { return i.searchLetters(&s, asJSON) },
		},
	}
}

// revealFlag declares a flag.
func revealFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "reveal", false, "show what masks hide; this needs the tag reveal, and stands in the audit")
}

// officePath is a path below office/what, for the virtual host that was named, or all.
func (i *invocation) officePath(what string, more ...string) string {
	p := "office/" + what
	if i.set("vhost") || len(more) > 0 {
		p += "/" + path(append([]string{i.vhost}, more...)...)
	}
	return p
}

// raw prints the API's answer as it is.
func (i *invocation) raw(at string) error {
	var answer json.RawMessage
	if err := i.get(at, &answer); err != nil {
		return i.inVHost(err)
	}
	i.print("%s", answer)
	return nil
}

func (i *invocation) listLetterQueues(asJSON bool) error {
	var rows []struct {
		VHost, Name, Type      string
		Letters, Others        int
		Oldest                 int64 `json:"oldest_ms"`
		Arrived                map[string]int
		Sources                []string
		Consumers, Read, Total int
		MaxLength              *int64 `json:"max_length"`
		Reading                bool
	}
	at := i.officePath("queues")
	for first := true; ; first = false {
		rows = nil
		if err := i.get(at, &rows); err != nil {
			return i.inVHost(err)
		}
		read, total, reading := 0, 0, false
		for _, r := range rows {
			reading = reading || r.Reading
			read, total = read+r.Read, total+max(r.Read, r.Total)
		}
		if !reading {
			break
		}
		i.progress(first, read, total)
	}
	if asJSON {
		return i.raw(at)
	}
	i.say("Queues with dead letters ...")
	now, sum := time.Now(), 0
	lines := []object{}
	for _, r := range rows {
		sum += r.Letters
		full := ""
		if r.MaxLength != nil && *r.MaxLength > 0 {
			full = fmt.Sprintf("%d%%", int64(r.Letters+r.Others)*100 / *r.MaxLength)
		}
		lines = append(lines, object{
			"vhost": r.VHost, "queue": r.Name, "type": r.Type, "letters": r.Letters, "others": r.Others, "oldest": ageOf(r.Oldest, now),
			"5m": r.Arrived["5m"], "1h": r.Arrived["1h"], "24h": r.Arrived["24h"], "died_in": strings.TrimSpace(strings.Join(r.Sources, " ")), "consumers": r.Consumers, "full": full,
		})
	}
	columns := fields("queue", "letters", "oldest", "5m", "1h", "24h", "died_in", "others", "consumers", "full")
	if i.severalVHosts(lines) {
		columns = slices.Concat(fields("vhost"), columns)
	}
	if err := i.aligned(columns, lines); err != nil {
		return err
	}
	switch {
	case len(rows) == 0:
		i.say("No queue holds dead letters, and no queue sends any.")
	case sum == 0:
		i.say("\nNo queue holds dead letters.")
	default:
		i.say("\nWhy they died: %s", i.call("dlq groups"))
	}
	return nil
}

func (i *invocation) listRetries(asJSON bool) error {
	at := i.officePath("retries")
	if asJSON {
		return i.raw(at)
	}
	var rows []struct {
		VHost, Queue string
		Waiting      int
		Next         int64 `json:"next_ms"`
		Late         int64 `json:"late_ms"`
		Due          struct {
			From   int64 `json:"from_ms"`
			Step   int64 `json:"step_ms"`
			Counts []int
		}
	}
	if err := i.get(at, &rows); err != nil {
		return i.inVHost(err)
	}
	i.say("Queues in which messages wait for a retry ...")
	lines := []object{}
	for _, r := range rows {
		last := 0
		for k, n := range r.Due.Counts {
			if n > 0 {
				last = k + 1
			}
		}
		until := func(at int64) string { return shortSpan(max(0, time.UnixMilli(at).Sub(time.UnixMilli(r.Due.From)))) }
		late := ""
		if r.Late > 0 {
			late = shortSpan(time.UnixMilli(r.Late).Sub(time.UnixMilli(0)))
		}
		lines = append(lines, object{
			"vhost": r.VHost, "queue": r.Queue, "waiting": r.Waiting, "next": until(r.Next), "all_in": until(r.Due.From + int64(last)*r.Due.Step), "late": late,
		})
	}
	columns := fields("queue", "waiting", "next", "all_in", "late")
	if i.severalVHosts(lines) {
		columns = slices.Concat(fields("vhost"), columns)
	}
	if err := i.aligned(columns, lines); err != nil {
		return err
	}
	if len(rows) == 0 {
		i.say("No message waits for a retry.")
	}
	return nil
}

// call is a command line for the user, with the virtual host that was named.
func (i *invocation) call(args string) string {
	if i.set("vhost") {
		args += " --vhost " + i.vhost
	}
	return ownName + " " + args
}

// progress says how far the node has come with reading its queues.
func (i *invocation) progress(first bool, read, total int) {
	if !i.quiet && !i.silent {
		if first {
			_, _ = fmt.Fprintln(i.errs, "The node reads its queues for the first time since it started ...")
		}
		_, _ = fmt.Fprintf(i.errs, "  %d of %d messages\n", read, total)
	}
}

// groupOptions are those of the verb.
type groupOptions struct {
	sort, state, source, reason, class, text string
	limit                                    int
	reveal                                   bool
}

func (o *groupOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.sort, "sort", "letters", "letters: the largest first; last: the latest death first; first: the newest group first; source: by queue")
	f.IntVar(&o.limit, "limit", 50, "number of groups to show")
	f.StringVar(&o.state, "state", "", "only groups in this state: new, triaged, replaying, resolved or archived")
	f.StringVar(&o.source, "source", "", "only letters that died in this queue")
	f.StringVar(&o.reason, "reason", "", "only letters that died for this reason: rejected, expired, maxlen or delivery_limit")
	f.StringVar(&o.class, "class", "", "only this class of error")
	f.StringVar(&o.text, "text", "", "only groups whose error, type or source has this text")
	revealFlag(f, &o.reveal)
}

// groups asks for a page of groups until the node has read its queues.
func (i *invocation) groups(at string, query url.Values) (page groupPage, err error) {
	for first := true; ; first = false {
		page = groupPage{}
		if err := i.get(at+"?"+query.Encode(), &page); err != nil {
			if is(err, http.StatusBadRequest) {
				return page, fail(exitData, "%v", err)
			}
			return page, i.inVHost(err)
		}
		if !page.Reading {
			return page, nil
		}
		i.progress(first, page.Read, page.Entries)
	}
}

// groupStates are what the node knows; another word would select nothing, as if there were no letters.
var groupStates = []string{"new", "triaged", "replaying", "resolved", "archived"}

func (i *invocation) listGroups(o *groupOptions, asJSON bool) error {
	if o.limit < 1 || o.limit > 1000 {
		return badArgument("--limit must be from 1 to 1000")
	}
	for _, c := range []struct {
		name, value string
		known       []string
	}{{"reason", o.reason, deathReasons}, {"state", o.state, groupStates}} {
		if c.value != "" && !slices.Contains(c.known, c.value) {
			return badArgument("--%s must be one of %s, not '%s'", c.name, strings.Join(c.known, ", "), c.value)
		}
	}
	query := url.Values{"limit": {strconv.Itoa(o.limit)}}
	for name, value := range map[string]string{"sort": o.sort, "state": o.state, "source": o.source, "reason": o.reason, "class": o.class, "text": o.text} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if o.sort == "source" {
		query.Set("order", "asc")
	}
	if o.reveal {
		query.Set("reveal", "true")
	}
	at := i.officePath("groups", i.args...)
	page, err := i.groups(at, query)
	if err != nil {
		return err
	}
	if asJSON {
		return i.raw(at + "?" + query.Encode())
	}
	where := "all queues"
	if len(i.args) > 0 {
		where = "queue '" + i.args[0] + "'"
	}
	i.say("%s in %s, of %s ...", counted(page.Letters, "dead letter"), counted(page.Total, "group"), where)
	short := shortIDs(page.Items)
	now := time.Now()
	lines := []object{}
	for n, g := range page.Items {
		id := short[n]
		if i.formatter != "" && i.formatter != "table" {
			id = g.ID
		}
		var queues []string
		for _, q := range g.Queues {
			queues = append(queues, q.Name)
		}
		lines = append(lines, object{
			"vhost": g.VHost, "group": id, "letters": g.Letters, "last": ageOf(g.Last, now), "first": ageOf(g.First, now), "died_in": g.Source, "reason": g.Reason,
			"error": g.cause(), "type": g.Type, "in": strings.Join(queues, " "), "state": g.State, "owner": g.Owner,
		})
	}
	columns := fields("group", "letters", "last", "first", "died_in", "reason", "error", "type", "in", "state", "owner")
	if i.severalVHosts(lines) {
		columns = slices.Concat(fields("vhost"), columns)
	}
	if err := i.aligned(columns, lines); err != nil {
		return err
	}
	if page.Total > len(page.Items) {
		i.say("\n%d more groups: --limit %d", page.Total-len(page.Items), min(1000, page.Total))
	}
	if len(lines) > 0 {
		show := "dlq show " + short[0]
		if g := page.Items[0]; len(i.args) > 0 && i.args[0] == archiveName { // the groups of all queues leave it out
			show = "dlq show " + archiveName + " " + g.Sample.ID
		}
		i.say("\nOne of its letters: %s", i.call(show))
	}
	return nil
}

// cause is the class and the pattern of the error.
func (g *letterGroup) cause() string { return causeText(g.ErrorClass, g.Error) }

func causeText(class, text string) string {
	class = class[strings.LastIndexByte(class, '.')+1:]
	switch {
	case class == "":
		return text
	case text == "":
		return class
	}
	return class + ": " + text
}

// shortIDs are the beginnings of ids by which no two groups are taken for each other.
func shortIDs(groups []letterGroup) []string {
	const shortest = 4
	short := make([]string, len(groups))
	for n, g := range groups {
		size := shortest
		for _, other := range groups {
			for other.ID != g.ID && size < len(g.ID) && strings.HasPrefix(other.ID, g.ID[:size]) {
				size++
			}
		}
		short[n] = g.ID[:min(size, len(g.ID))]
	}
	return short
}

// findGroup finds the group whose id begins so.
func (i *invocation) findGroup(beginning string) (found letterGroup, err error) {
	query := url.Values{"limit": {"1000"}}
	n := 0
	for {
		page, err := i.groups(i.officePath("groups"), query)
		if err != nil {
			return found, err
		}
		for _, g := range page.Items {
			if g.ID == beginning {
				return g, nil
			}
			if strings.HasPrefix(g.ID, beginning) {
				found = g
				n++
			}
		}
		if page.Next == nil {
			break
		}
		query.Set("cursor", *page.Next)
	}
	switch n {
	case 0:
		return found, fail(exitData, "No group of dead letters has an id that begins with '%s'. '%s' lists them.", beginning, i.call("dlq groups"))
	case 1:
		return found, nil
	}
	return found, fail(exitData, "%d groups have an id that begins with '%s'; type more of it", n, beginning)
}

func (i *invocation) showLetter(asJSON, reveal bool) error {
	var queue, id string
	if len(i.args) == 2 {
		queue, id = i.args[0], i.args[1]
	} else {
		g, err := i.findGroup(i.args[0])
		if err != nil {
			return err
		}
		i.vhost, queue, id = g.VHost, g.Sample.Queue, g.Sample.ID
		i.say("The letter that died last of %d in group %s ...", g.Letters, g.ID)
	}
	at := "office/letters/" + path(i.vhost, queue, id)
	if reveal {
		at += "?reveal=true"
	}
	if asJSON {
		return i.raw(at)
	}
	var l struct {
		letterRow
		Timeline []struct {
			Queue, Reason, Exchange string
			Count                   uint64
			Last                    int64    `json:"last_ms"`
			Keys                    []string `json:"routing_keys"`
			Earlier                 bool
		}
		RejectedBy struct {
			ConsumerTag   string `json:"consumer_tag"`
			Connection    string
			Name          string `json:"connection_name"`
			User          string
			Product       string
			Version       string
			DeliveryCount uint64 `json:"delivery_count"`
		} `json:"rejected_by"`
		Cause struct{ Class, Error, Detail, From string }
		// ReplayedFrom and OlderHeaders are of the last replay.
		ReplayedFrom string `json:"replayed_from"`
		From         string
		OlderHeaders bool `json:"older_headers"`
		Discarded    *discarded
		Properties   object
		Headers      object
		Body         struct {
			Bytes          int
			Encoding, Text string
			Section        string
			Cut            bool
		}
		Replay struct {
			Exchange string
			Keys     []string `json:"routing_keys"`
			Queues   []string
			Problem  *string
		}
	}
	err := i.get(at, &l)
	switch {
	case is(err, http.StatusGone):
		return fail(exitData, "%v", err)
	case err != nil:
		return i.inVHost(err)
	}
	now := time.Now()
	item := func(name, format string, args ...any) { i.print("%-13s %s", name, fmt.Sprintf(format, args...)) }
	item("letter", "%s in queue '%s', %s, %d bytes", l.ID, queue, l.State, l.Size)
	item("died", "%s ago (%s), %s, %s", ageOf(l.Died, now), time.UnixMilli(l.Died).Format(time.RFC3339), diedHow(l.Reason, l.Source), times(l.TimesDied))
	if l.Cause.Class != "" {
		item("class", "%s", plain(l.Cause.Class))
	}
	if l.Cause.Error != "" {
		item("error", "%s", plain(l.Cause.Error))
	}
	if l.OlderHeaders && l.Cause == (struct{ Class, Error, Detail, From string }{}) {
		item("error", "not known: nobody has said why it died this time. What its headers say is older than the last replay")
	}
	by := &l.RejectedBy
	connection := by.Connection
	if by.Name != "" {
		connection = by.Name + ", " + connection
	}
	for _, who := range [][2]string{
		{"consumer", by.ConsumerTag}, {"connection", connection}, {"user", by.User},
		{"client", strings.TrimSpace(by.Product + " " + by.Version)},
	} {
		if who[1] != "" {
			item("rejected by", "%s %s", who[0], plain(who[1]))
		}
	}
	if by.DeliveryCount > 0 {
		item("failed", "%s", times(by.DeliveryCount))
	}
	item("published", "exchange '%s' key '%s'", plain(l.Exchange), plain(strings.Join(l.Keys, "' '")))
	if l.Replay.Problem != nil {
		item("a replay", "is not possible: %s", plain(*l.Replay.Problem))
	} else {
		item("a replay", "would put it into %s", plain(strings.Join(l.Replay.Queues, ", ")))
	}
	if l.Lost != "" {
		item("lost", "%s (%s)", lostWhy(l.Lost, plain(l.Source)), plain(l.Lost))
	}
	if l.Replays > 0 {
		item("replayed", "%s before", times(l.Replays))
	}
	if d := l.Discarded; d != nil {
		item("discarded", "%s", d.String())
	}
	item("group", "%s", l.Group)
	for _, name := range sortedKeys(l.Properties) {
		item(name, "%s", plain(sprint(l.Properties[name])))
	}
	i.print("\nWhere it died, the last time first:")
	back := ""
	if l.Replays > 0 {
		back = "  sent back" + from(l.ReplayedFrom)
		if l.Job != nil && l.From == "" {
			back += ", by job " + *l.Job
		}
	}
	for _, d := range l.Timeline {
		earlier := ""
		if d.Earlier && back != "" {
			i.print("%s", back)
			back = ""
		}
		if d.Earlier {
			earlier = ", before it was published again"
		}
		when := "time not known"
		if d.Last != 0 {
			when = ageOf(d.Last, now) + " ago"
		}
		i.print("  %s  %s, %s%s", when, diedHow(d.Reason, d.Queue), times(d.Count), earlier)
	}
	if back != "" {
		i.print("%s", back)
	}
	if names := sortedKeys(l.Headers); len(names) > 0 {
		i.print("\nHeaders:")
		for _, name := range names {
			if name != "x-death" && !(name == "x-exception-stacktrace" && l.Cause.Detail != "" && l.Cause.From == "spring") { // they stand above and below
				text, _ := encode(l.Headers[name])
				i.print("  %s: %s", plain(name), cutText(text, 200))
			}
		}
	}
	if l.Cause.Detail != "" {
		i.print("\nDetail:\n%s", printable(firstLines(l.Cause.Detail, 20)))
	}
	form := l.Body.Encoding
	switch l.Body.Section {
	case "amqp-value":
		form = "an AMQP value"
	case "amqp-sequence":
		form = "AMQP sequences"
	}
	i.print("\nBody (%s):\n%s", form, printable(indented(l.Body.Encoding, l.Body.Text)))
	if l.Body.Cut {
		i.print("... the first part of %d bytes", l.Body.Bytes)
	}
	return nil
}

// discarded is how a letter came to the archive.
type discarded struct {
	Job, By, Reason, Rule string
	At                    int64 `json:"at_ms"`
}

func (d *discarded) String() string {
	text := "by " + plain(d.By) + ", job " + d.Job
	if d.Rule != "" {
		text = "by rule '" + plain(d.Rule) + "', with the rights of " + plain(d.By)
	}
	if d.At != 0 {
		text = ageOf(d.At, time.Now()) + " ago " + text
	}
	if d.Reason != "" {
		text += ", because: " + plain(d.Reason)
	}
	return text
}

// from names the queue that something was taken from, if it is known.
func from(queue string) string {
	if queue == "" {
		return ""
	}
	return fmt.Sprintf(" from '%s'", plain(queue))
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func sortedKeys(o object) (names []string) {
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// indented is a JSON body laid out.
func indented(encoding, text string) string {
	var b bytes.Buffer
	if encoding == "json" && json.Indent(&b, []byte(text), "", "  ") == nil {
		return b.String()
	}
	return text
}

// firstLines are the first n lines.
func firstLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	if len(lines) <= n {
		return text
	}
	return strings.Join(lines[:n], "\n") + fmt.Sprintf("\n... %d more lines: --json", len(lines)-n)
}

// printable takes out what would steer a terminal: what is shown may come from anybody.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			return '·'
		}
		return r
	}, text)
}

// plain is a value in a line: nothing in it steers a terminal or ends the line.
func plain(v any) string { return printable(cell(v)) }

// searchOptions are the filters.
type searchOptions struct {
	values        map[string]*string
	where         []string
	oldest, count bool
	limit         int
	reveal        bool
}

// searchFilters are the filters of the API with their help.
var searchFilters = []struct{ name, help string }{
	{"group", "of this group; the beginning of its id is enough"},
	{"reason", "that died for this reason: rejected, expired, maxlen or delivery_limit"},
	{"source", "that died in this queue"},
	{"exchange", "first published to this exchange; amq.default is the default exchange"},
	{"key", "first published with this routing key"},
	{"class", "with this class of error; its last part is enough"},
	{"error", "whose error matches this regular expression"},
	{"older-than", "that died longer ago than this, such as 90s, 15m, 12h or 2d"},
	{"newer-than", "that died less long ago than this"},
	{"died", "that died so often: 3, '>=3', '<3'"},
	{"size", "with a body of so many bytes: '>=1024'"},
	{"job", "that this job has sent"},
	{"message-id", "with this message id"},
	{"type", "with this type of message"},
	{"rejected-by-user", "that this user rejected last"},
	{"client", "that this client rejected last: what it calls its connection, or its product, with the version or without"},
	{"body", "whose body has this text"},
}

// parameter is the name of a filter in the API. There user is the filter; here --user is who logs in.
func parameter(filter string) string {
	if filter == "rejected-by-user" {
		return "user"
	}
	return strings.ReplaceAll(filter, "-", "_")
}

func (o *searchOptions) flags(f *pflag.FlagSet) {
	o.filterFlags(f)
	f.BoolVar(&o.oldest, "oldest", false, "the front of the queue first")
	f.BoolVar(&o.count, "count", false, "only count them")
	f.IntVar(&o.limit, "limit", 20, "number of letters to show; 0 means all")
}

// filterFlags are the filters alone.
func (o *searchOptions) filterFlags(f *pflag.FlagSet) {
	revealFlag(f, &o.reveal)
	o.values = map[string]*string{}
	for _, filter := range searchFilters {
		o.values[filter.name] = f.String(filter.name, "", "only letters "+filter.help)
	}
	f.StringArrayVar(&o.where, "where", nil, "only letters with this header or property: header.NAME, header.NAME=VALUE, property.NAME~REGEX; also != < <= > >=; given several times, all must hold")
}

const searchUsage = "[--vhost <vhost>] [--group <id>] [--reason <reason>] [--source <queue>] [--exchange <exchange>] [--key <key>] [--class <class>] [--error <regex>] [--older-than <age>] [--newer-than <age>] " +
	"[--died <n>] [--size <n>] [--job <id>] [--message-id <id>] [--type <type>] [--rejected-by-user <user>] [--client <client>] [--body <text>] [--where <condition>] [--oldest] [--count] [--limit <n>] [--reveal] [--json] <queue>"

const searchHelp = `All filters that are given must hold. The letter that came last is shown first. With --json each letter is a line of JSON.

Exit codes: 0: there are such letters; 1: there are none; 65: a name or value is wrong; 77: not allowed; other codes: it failed.`

// noneFound ends a search that has found nothing with the code of grep.
type noneFound struct{}

// Error is empty: the answer says it.
func (noneFound) Error() string { return "" }

// ExitCode is that of grep.
func (noneFound) ExitCode() int { return 1 }

// letterQuery is the query that asks for the letters of these filters, shown with or without masks.
// The beginning of a group's id becomes the whole id.
func (i *invocation) letterQuery(o *searchOptions) (url.Values, error) {
	query := url.Values{}
	for name, value := range o.values {
		if i.set(name) {
			query.Set(parameter(name), *value)
		}
	}
	if len(o.where) > 0 {
		query["where"] = o.where
	}
	if beginning := query.Get("group"); beginning != "" {
		g, err := i.findGroup(beginning)
		if err != nil {
			return nil, err
		}
		query.Set("group", g.ID)
	}
	if o.reveal {
		query.Set("reveal", "true")
	}
	return query, nil
}

func (i *invocation) searchLetters(o *searchOptions, asJSON bool) error {
	if o.limit < 0 {
		return badArgument("--limit must not be negative")
	}
	query, err := i.letterQuery(o)
	if err != nil {
		return err
	}
	if o.oldest {
		query.Set("order", "oldest")
	}
	if o.limit > 0 && !o.count {
		query.Set("limit", strconv.Itoa(o.limit))
	}
	now := time.Now()
	n, lines := 0, []object{}
	end, err := i.streamLetters("office/letters/"+path(i.vhost, i.args[0])+"?"+query.Encode(), func(raw json.RawMessage) error {
		n++
		if o.count {
			return nil
		}
		if asJSON {
			i.print("%s", raw)
			return nil
		}
		var l letterRow
		if err := json.Unmarshal(raw, &l); err != nil {
			return fail(exitSoftware, "cannot read the answer: %v", err)
		}
		lines = append(lines, object{
			"id": l.ID, "died": ageOf(l.Died, now), "times": l.TimesDied, "died_in": l.Source, "reason": l.Reason, "error": causeText(l.ErrorClass, l.Error), "type": l.Type, "message_id": l.MessageID,
			"state": l.State, "bytes": l.Size, "body": l.Preview, "group": l.Group,
		})
		return nil
	})
	if err != nil {
		return err
	}
	if o.count {
		i.print("%d", n)
	} else if !asJSON {
		i.say("Dead letters of queue '%s' in vhost '%s', changing nothing ...", i.args[0], i.vhost)
		if err := i.aligned(fields("id", "died", "times", "died_in", "reason", "error", "message_id", "bytes", "state", "body"), lines); err != nil {
			return err
		}
		switch {
		case end.Stopped != nil:
			i.say("\nThere may be more: %d messages were looked at; --limit 0 shows all.", end.Examined)
		case n > 0:
			i.say("\n%s, of %s.", counted(n, "letter"), counted(end.Examined, "message"))
		default:
			i.say("No letter is selected, of %s.", counted(end.Examined, "message"))
		}
	}
	if n == 0 {
		return noneFound{}
	}
	return nil
}

// letterEnd is how far a search has come.
type letterEnd struct {
	Examined int
	Stopped  *string
}

// streamLetters calls f for each letter of a stream.
func (i *invocation) streamLetters(at string, f func(json.RawMessage) error) (end letterEnd, err error) {
	c := i.api
	req, err := http.NewRequestWithContext(i.ctx, http.MethodGet, c.base+"/api/"+at, nil)
	if err != nil {
		return end, fail(exitUsage, "%v", err)
	}
	req.Header.Set("Accept", "application/x-ndjson")
	if c.dir == "" {
		req.SetBasicAuth(c.user, c.password)
	}
	c.http.Timeout = i.limit(0) // no timeout unless --timeout was given
	resp, err := c.http.Do(req)
	if err != nil {
		return end, c.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		err := refusal(resp.StatusCode, text)
		if is(err, http.StatusBadRequest) {
			return end, fail(exitData, "%v", err)
		}
		return end, i.inVHost(err)
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return end, c.unreachable(err) // the end was not there
		}
		var l struct {
			Letter json.RawMessage
			End    *letterEnd
			Error  *struct{ Reason string }
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return end, fail(exitSoftware, "cannot read the answer: %v", err)
		}
		switch {
		case l.Letter != nil:
			if err := f(l.Letter); err != nil {
				return end, err
			}
		case l.Error != nil:
			return end, fail(exitUnavailable, "%s", l.Error.Reason)
		case l.End != nil:
			return *l.End, nil
		}
	}
}

// ageOf is how long ago a moment was: 40s, 12m, 5h, 3d.
func ageOf(ms int64, now time.Time) string {
	if ms == 0 {
		return ""
	}
	return shortSpan(max(0, now.Sub(time.UnixMilli(ms))))
}

// shortSpan is a span in the largest unit that still tells something.
func shortSpan(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// severalVHosts says whether lines are of another virtual host than the one that commands mean.
func (i *invocation) severalVHosts(lines []object) bool {
	return slices.ContainsFunc(lines, func(o object) bool { return o["vhost"] != i.vhost })
}

// widestCell is how many characters of a value an aligned table shows.
const widestCell = 60

// aligned prints a table for people: columns stand below each other, numbers and ages to the right, columns without a value
// are left out. Other formats are as those of list.
func (i *invocation) aligned(columns []column, items []object) error {
	if i.formatter != "" && i.formatter != "table" {
		return i.list("", columns, items)
	}
	if len(items) == 0 {
		return nil
	}
	rows := make([][]string, len(items)+1)
	var widths []int
	var right []bool
	for _, c := range columns {
		width, number, empty := 0, true, true
		for n, o := range items {
			text := cutText(plain(cmp.Or[any](c.value(o), "")), widestCell)
			if _, is := c.value(o).(string); is && !isAge(text) {
				number = false
			}
			empty = empty && (text == "" || text == "0")
			rows[n+1] = append(rows[n+1], text)
			width = max(width, utf8.RuneCountInString(text))
		}
		if empty && c.name != "letters" {
			for n := range items {
				rows[n+1] = rows[n+1][:len(rows[n+1])-1]
			}
			continue
		}
		rows[0] = append(rows[0], strings.ToUpper(strings.ReplaceAll(c.name, "_", " ")))
		widths, right = append(widths, max(width, len(c.name))), append(right, number)
	}
	for n, row := range rows {
		if n == 0 && (i.silent || i.noHeaders) {
			continue
		}
		var b strings.Builder
		for k, text := range row {
			pad := strings.Repeat(" ", widths[k]-utf8.RuneCountInString(text))
			if right[k] {
				b.WriteString(pad + text + "  ")
			} else {
				b.WriteString(text + pad + "  ")
			}
		}
		i.print("%s", strings.TrimRight(b.String(), " "))
	}
	return nil
}

func isAge(text string) bool {
	n := len(text) - 1
	return n > 0 && strings.IndexByte("smhd%", text[n]) >= 0 && strings.Trim(text[:n], "0123456789") == "" || text == ""
}

// cutText is at most most characters of a text, on one line.
func cutText(text string, most int) string {
	text = strings.ReplaceAll(printable(text), "\n", " ")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// lostWhy says why a letter that died in queue is in the lost and found.
func lostWhy(why, queue string) string {
	switch why {
	case "dlx_missing":
		return fmt.Sprintf("the dead-letter exchange of queue '%s' does not exist", queue)
	case "no_route":
		return fmt.Sprintf("the dead-letter exchange of queue '%s' led to no queue", queue)
	case "no_dlx":
		return fmt.Sprintf("it failed as often as it may, and queue '%s' has no dead-letter exchange", queue)
	case "cycle":
		return "it would have come back to a queue in which it had died"
	case "target_refused":
		return fmt.Sprintf("every queue to which queue '%s' sends its dead letters was full", queue)
	}
	return "it led nowhere"
}

// diedHow says where and how a letter died. A letter that a consumer has parked itself has no queue.
func diedHow(reason, queue string) string {
	if queue == "" {
		return "parked by a consumer"
	}
	return fmt.Sprintf("%s in queue '%s'", reason, plain(queue))
}
