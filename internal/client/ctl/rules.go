package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rulesHelp = `Rules say what is done with dead letters without anybody asking: sent back later and later, moved, discarded, held, or told to a webhook.

  bartleby rules ls                     which rules there are, and what they have done
  bartleby rules try rule.json          what a rule would do with the letters there are
  bartleby rules set rule.json          sets a rule, or all of them
  bartleby rules on NAME                switches it on

A rule is JSON, such as {"name": "orders", "on": true, "queues": "^orders", "match": {"class": "TimeoutException"}, "action": "retry", "after_ms": 60000, "factor": 2, "max_times": 5}. A rule that sends letters back where they were first published takes those that a consumer has parked itself, or that were imported, only with "parked": true.`

// family is a command with verbs of its own.
func family(o *options, name, short, long string, verbs []verb) *cobra.Command {
	c := &cobra.Command{
		Use: name + " <command>", Short: short, Long: long, Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			text := fmt.Sprintf("\nCommand '%s %s' not found. \n", name, args[0])
			if near := nearest(c, args[0]); near != "" {
				return &failure{exitUsage, text + fmt.Sprintf("Did you mean '%s %s'? \n", name, near)}
			}
			return &failure{exitUsage, text + fmt.Sprintf("\nUse '%s %s' for a list of the commands.", c.Root().Name(), name)}
		},
	}
	for _, v := range verbs {
		v.ours = true
		c.AddCommand(v.command(o))
	}
	return c
}

// ruleShown is a rule as the API shows it.
type ruleShown struct {
	Name, Queues, Action, State, Why, By string
	Match                                map[string]any
	Webhook                              string
	AfterMS                              int64   `json:"after_ms"`
	Factor                               float64 `json:"factor"`
	ToQueue                              string  `json:"to_queue"`
	ToExchange                           *string `json:"to_exchange"`
	RoutingKey                           *string `json:"routing_key"`
	Parked                               bool
	Acted                                uint64
	Waiting                              int64
	LastMS                               int64 `json:"last_ms"`
	CountsHidden                         bool  `json:"counts_hidden"`
}

// does is what the rule does, in words.
func (r *ruleShown) does() string {
	text := r.Action
	switch {
	case r.ToQueue != "":
		text += " to " + r.ToQueue
	case r.ToExchange != nil:
		text += " to exchange " + *r.ToExchange
	case r.Webhook != "":
		text += " " + r.Webhook
	}
	if r.RoutingKey != nil {
		text += " key " + *r.RoutingKey
	}
	if r.AfterMS > 0 {
		text += " after " + time.UnixMilli(r.AfterMS).Sub(time.UnixMilli(0)).String()
		if r.Factor > 1 {
			text += fmt.Sprintf(" x%g", r.Factor)
		}
	}
	if r.Parked {
		text += ", parked too"
	}
	return text
}

// which are the letters that the rule takes, in words.
func (r *ruleShown) which() string {
	var texts []string
	if r.Queues != "" {
		texts = append(texts, "queues ~ "+r.Queues)
	}
	var keys []string
	for k := range r.Match {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		values, isList := r.Match[k].([]any)
		if !isList {
			values = []any{r.Match[k]}
		}
		for _, v := range values {
			texts = append(texts, k+" "+sprint(v))
		}
	}
	if texts == nil {
		return "all"
	}
	return strings.Join(texts, ", ")
}

// ruleBook is the API's answer.
type ruleBook struct {
	Rules     []ruleShown
	Threshold int
}

// rulesCommand is the command with the verbs of rules.
func rulesCommand(o *options) *cobra.Command {
	var asJSON, force bool
	jsonFlag := func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "JSON, as the management API answers")
	}
	one := func(name, short string, run func(i *invocation, at string) error) verb {
		return verb{name: name, short: short, usage: "[--vhost <vhost>] <rule>", min: 1, max: 1, run: func(i *invocation) error {
			return ruleFailed(run(i, path("office", "rules", i.vhost, i.args[0])))
		}}
	}
	return family(o, "rules", "Shows and sets the rules for dead letters", rulesHelp, []verb{
		{
			name: "ls", short: "Lists the rules of a virtual host, in their order", usage: "[--vhost <vhost>] [--json]", flags: jsonFlag,
			long: "A letter goes to the first rule that takes it. State is on, off, or stopped: then the rule lacks a right, and goes on when somebody switches it on.",
			run:  func(i *invocation) error { return i.listRules(asJSON) },
		},
		one("show", "Shows a rule as JSON, which 'rules set' takes", func(i *invocation, at string) error { return i.raw(at) }),
		{
			name: "set", short: "Sets a rule, or all rules of a virtual host", usage: "[--vhost <vhost>] [--force] <file>", min: 1, max: 1,
			long: "The file, or standard input if it is -, has a rule, which takes the place of the one of its name or becomes the last; or {\"rules\": [...], \"threshold\": n}, which are all rules in their order, and from how many " +
				"messages on an event tells of a queue. What 'rules show' and 'rules ls --json' print can be set again. The latter names its revision: it is refused, with exit code 65, if " +
				"somebody has changed the rules since it was printed, unless with --force.",
			flags: func(f *pflag.FlagSet) {
				f.BoolVar(&force, "force", false, "also if the rules were changed since the file was printed")
			},
			run: func(i *invocation) error { return ruleFailed(i.setRules(force)) },
		},
		{
			name: "try", short: "Says what a rule would do with the letters there are", usage: "[--vhost <vhost>] [--json] <file> | <rule>", min: 1, max: 1, flags: jsonFlag,
			long: "Takes a file with a rule, - being standard input, or the name of a rule. Nothing is changed. It is asked as if it were the only rule, and sees the queues that you may read.",
			run:  func(i *invocation) error { return ruleFailed(i.tryRule(asJSON)) },
		},
		one("on", "Switches a rule on, with your rights", func(i *invocation, at string) error { return i.switchRule(at, "on") }),
		one("off", "Switches a rule off", func(i *invocation, at string) error { return i.switchRule(at, "off") }),
		one("rm", "Removes a rule", func(i *invocation, at string) error { return i.delete(at) }),
	})
}

// ruleFailed explains what the API refuses.
func ruleFailed(err error) error {
	if err == nil {
		return nil
	}
	return jobFailed(err)
}

func (i *invocation) listRules(asJSON bool) error {
	at := path("office", "rules", i.vhost)
	if asJSON {
		return i.raw(at)
	}
	var b ruleBook
	if err := i.get(at, &b); err != nil {
		return i.inVHost(err)
	}
	if len(b.Rules) == 0 {
		i.say("Virtual host '%s' has no rules.", i.vhost)
		return nil
	}
	i.say("Rules of virtual host '%s', in their order ...", i.vhost)
	now := time.Now()
	var lines []object
	for n := range b.Rules {
		r := &b.Rules[n]
		last := ""
		if r.LastMS > 0 {
			last = ageOf(r.LastMS, now)
		}
		var acted, waiting any = r.Acted, r.Waiting
		if r.CountsHidden {
			acted, waiting, last = "-", "-", "-"
		}
		lines = append(lines, object{"name": r.Name, "state": r.State, "does": r.does(), "letters": r.which(), "acted": acted, "waiting": waiting, "last": last, "by": r.By})
	}
	if err := i.aligned(fields("name", "state", "does", "letters", "acted", "waiting", "last", "by"), lines); err != nil {
		return err
	}
	for n := range b.Rules {
		if why := b.Rules[n].Why; why != "" {
			i.say("%s: %s", b.Rules[n].Name, printable(why))
		}
	}
	return nil
}

// readDocument reads a file, or standard input.
func readDocument(name string) (text []byte, err error) {
	if name == "-" {
		text, err = io.ReadAll(io.LimitReader(os.Stdin, maxDocument))
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fail(exitData, "%v", err)
	}
	if !json.Valid(text) {
		return nil, fail(exitData, "%s is no JSON", name)
	}
	return text, nil
}

const maxDocument = 1 << 20 // bytes

func (i *invocation) setRules(force bool) error {
	text, err := readDocument(i.args[0])
	if err != nil {
		return err
	}
	var what struct {
		Name      string
		Rules     json.RawMessage
		Threshold json.RawMessage
	}
	if err := json.Unmarshal(text, &what); err != nil {
		return fail(exitData, "%s: neither a rule nor rules: %v", i.args[0], err)
	}
	if what.Rules != nil || what.Threshold != nil {
		return i.setAllRules(text, force)
	}
	if what.Name == "" {
		return fail(exitData, "%s: the rule has no name", i.args[0])
	}
	return i.put(path("office", "rules", i.vhost, what.Name), json.RawMessage(text))
}

// setAllRules sets the rules of a document. One that 'rules ls --json' has printed names its revision, which the node compares.
func (i *invocation) setAllRules(text []byte, force bool) error {
	var body map[string]json.RawMessage
	if err := json.Unmarshal(text, &body); err != nil {
		return fail(exitData, "%s: %v", i.args[0], err)
	}
	if force {
		delete(body, "revision")
	}
	err := i.put(path("office", "rules", i.vhost), body)
	if is(err, http.StatusPreconditionFailed) {
		return fail(exitData, "%v. With --force those of the file are set all the same", err)
	}
	return err
}

func (i *invocation) switchRule(at, how string) error {
	return i.post(at+"/"+how, nil, nil)
}

func (i *invocation) tryRule(asJSON bool) error {
	var rule json.RawMessage
	if _, err := os.Stat(i.args[0]); err == nil || i.args[0] == "-" {
		text, err := readDocument(i.args[0])
		if err != nil {
			return err
		}
		rule = text
	} else if err := i.get(path("office", "rules", i.vhost, i.args[0]), &rule); err != nil {
		if is(err, http.StatusNotFound) {
			return fail(exitData, "'%s' is neither a file nor a rule of virtual host '%s'", i.args[0], i.vhost)
		}
		return err
	}
	i.api.http.Timeout = i.limit(time.Minute) // the node looks at letters for some seconds
	var answer json.RawMessage
	if err := i.post(path("office", "rules", i.vhost, "try"), rule, &answer); err != nil {
		return err
	}
	if asJSON {
		i.print("%s", answer)
		return nil
	}
	var t struct {
		Examined, Matched, Due int
		TooOften               int `json:"too_often"`
		NoOrigin               int `json:"no_origin"`
		Parked                 int
		ByQueue                []struct {
			Queue   string
			Letters int
		} `json:"by_queue"`
		Stopped *string
	}
	if err := json.Unmarshal(answer, &t); err != nil {
		return fail(exitSoftware, "the answer cannot be read: %v", err)
	}
	i.print("The rule would take %d of %s, %d of them at once.", t.Matched, counted(t.Examined, "message"), t.Due)
	for _, q := range t.ByQueue {
		i.print("  %d  in queue %s", q.Letters, printable(q.Queue))
	}
	if t.TooOften > 0 {
		i.print("  %d  not: they were replayed or sent too often", t.TooOften)
	}
	if t.NoOrigin > 0 {
		i.print("  %d  not: nobody knows where they were first published", t.NoOrigin)
	}
	if t.Parked > 0 {
		i.print("  %d  not: a client says where they were first published; the rule takes them with \"parked\": true", t.Parked)
	}
	if t.Stopped != nil {
		i.print("There is more, which was not looked at in time.")
	}
	if t.Matched == 0 {
		return noneFound{}
	}
	return nil
}
