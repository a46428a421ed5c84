package office

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
)

// Rule says what is done with letters without anybody asking. Its JSON is its form in the API and in the store.
type Rule struct {
	Name   string     `json:"name"`
	On     bool       `json:"on"`
	Queues string     `json:"queues,omitempty"` // regular expression that the name of the queue matches; "": all queues
	Match  Filter     `json:"match,omitempty"`  // none: all letters
	Action RuleAction `json:"action"`

	AfterMS       int64   `json:"after_ms,omitempty"`       // since its last death
	Factor        float64 `json:"factor,omitempty"`         // by which AfterMS grows with each replay; 0: 1
	MaxMS         int64   `json:"max_ms,omitempty"`         // which AfterMS never exceeds; 0: maxAfter
	JitterPercent float64 `json:"jitter_percent,omitempty"` // by which the wait of each letter is longer or shorter
	MaxTimes      uint64  `json:"max_times,omitempty"`      // a letter replayed, or moved by rules, so often is left; 0: see times

	ToQueue    string  `json:"to_queue,omitempty"`
	ToExchange *string `json:"to_exchange,omitempty"`
	RoutingKey *string `json:"routing_key,omitempty"`
	Webhook    string  `json:"webhook,omitempty"`
	// Parked lets a rule that leads letters to their origin take those whose origin is a client's word: see trusts.
	Parked bool `json:"parked,omitempty"`
	// Last is false only for RuleWebhook: rules that follow look at the letter too. nil: true.
	Last *bool `json:"last,omitempty"`
}

// Filter selects letters: see letter.ParseQuery. In JSON the value of a filter is a text, a number, or a list of them; one value, except that of
// where, is written as a text.
type Filter map[string][]string

// MarshalJSON implements json.Marshaler.
func (f Filter) MarshalJSON() ([]byte, error) {
	form := make(map[string]any, len(f))
	for name, values := range f {
		if form[name] = values; len(values) == 1 && name != "where" {
			form[name] = values[0]
		}
	}
	return json.Marshal(form)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Filter) UnmarshalJSON(text []byte) error {
	var form map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&form); err != nil {
		return errors.New("match must be a JSON object of filters")
	}
	*f = nil
	for name, value := range form {
		values, isList := value.([]any)
		if !isList {
			values = []any{value}
		}
		for _, v := range values {
			switch v := v.(type) {
			case nil:
				continue
			case string:
				f.add(name, v)
			case json.Number:
				f.add(name, v.String())
			default:
				return fmt.Errorf("filter '%.100s': its value must be a text, a number or a list of them", name)
			}
		}
	}
	return nil
}

func (f *Filter) add(name, value string) {
	if *f == nil {
		*f = Filter{}
	}
	(*f)[name] = append((*f)[name], value)
}

// RuleAction is what a rule does with a letter.
type RuleAction string

// The actions.
const (
	RuleRetry   RuleAction = "retry"   // sends it back to its origin, or where the rule says
	RuleSend    RuleAction = "send"    // to a queue, with its deaths, or to an exchange
	RuleDiscard RuleAction = "discard" // into the archive
	RuleHold    RuleAction = "hold"    // leaves it where it is, and keeps the rules that follow from it
	RuleWebhook RuleAction = "webhook" // tells a webhook of it, and leaves it where it is
)

// ruleActions lists them.
var ruleActions = []RuleAction{RuleRetry, RuleSend, RuleDiscard, RuleHold, RuleWebhook}

// Bounds of rules.
const (
	maxRules      = 100  // of a virtual host
	maxRuleSteps  = 2000 // of all expressions of the rules of a virtual host: every letter, and the name of every queue with letters, is matched with all
	maxRuleName   = 100  // bytes
	maxRuleQueues = 1 << 10
	maxAfter      = 30 * 24 * int64(time.Hour/time.Millisecond)
	minRetry      = int64(time.Second / time.Millisecond) // so that what fails at once does not keep a node busy
	maxFactor     = 100
	maxTimesBound = 1000

	defaultRetries = 3
	defaultSends   = 100
)

func wrongRule(name, format string, args ...any) error {
	return refuse(BadRequest, "rule '%s': %s", name, fmt.Sprintf(format, args...))
}

// check says what is wrong with the rule.
func (r *Rule) check() error {
	wrong := func(format string, args ...any) error { return wrongRule(r.Name, format, args...) }
	ways := r.ToQueue != "" || r.ToExchange != nil || r.RoutingKey != nil
	waits := r.AfterMS != 0 || r.Factor != 0 || r.MaxMS != 0 || r.JitterPercent != 0
	switch {
	case r.Name == "" || len(r.Name) > maxRuleName || !utf8.ValidString(r.Name):
		return refuse(BadRequest, "rule '%.100s': its name must be UTF-8 of 1 to %d bytes", r.Name, maxRuleName)
	case len(r.Queues) > maxRuleQueues:
		return wrong("queues has %d bytes; at most %d are allowed", len(r.Queues), maxRuleQueues)
	case !slices.Contains(ruleActions, r.Action):
		return wrong("action '%.100s' is none; it must be retry, send, discard, hold or webhook", r.Action)
	case r.Match["older_than"] != nil || r.Match["newer_than"] != nil:
		return wrong("match cannot ask for an age, since a letter is looked at when it has died: after_ms says how long the rule waits")
	case r.AfterMS < 0 || r.AfterMS > maxAfter:
		return wrong("after_ms is %d; it must be from 0 to %d", r.AfterMS, maxAfter)
	case r.Action == RuleRetry && r.AfterMS < minRetry:
		return wrong("after_ms is %d; a retry waits at least %d", r.AfterMS, minRetry)
	case r.Factor != 0 && !(r.Factor >= 1 && r.Factor <= maxFactor):
		return wrong("factor is %g; it must be from 1 to %d", r.Factor, maxFactor)
	case r.MaxMS < 0 || r.MaxMS > maxAfter || r.MaxMS != 0 && r.MaxMS < r.AfterMS:
		return wrong("max_ms is %d; it must be from after_ms to %d", r.MaxMS, maxAfter)
	case !(r.JitterPercent >= 0 && r.JitterPercent <= 100):
		return wrong("jitter_percent is %g; it must be from 0 to 100", r.JitterPercent)
	case r.MaxTimes > maxTimesBound:
		return wrong("max_times is %d; it must be from 1 to %d", r.MaxTimes, maxTimesBound)
	case r.MaxTimes != 0 && r.Action != RuleRetry && r.Action != RuleSend:
		return wrong("max_times is for retry and send")
	case (r.Factor != 0 || r.MaxMS != 0) && r.Action != RuleRetry:
		return wrong("factor and max_ms are for retry")
	case waits && (r.Action == RuleHold || r.Action == RuleWebhook):
		return wrong("after_ms, factor, max_ms and jitter_percent are not for %s, which does not wait", r.Action)
	case r.Action == RuleSend && (r.ToQueue == "") == (r.ToExchange == nil):
		return wrong("send needs to_queue or to_exchange, and not both")
	case r.ToQueue != "" && (r.ToExchange != nil || r.RoutingKey != nil):
		return wrong("to_queue cannot be combined with to_exchange or routing_key")
	case ways && r.Action != RuleRetry && r.Action != RuleSend:
		return wrong("to_queue, to_exchange and routing_key are for retry and send")
	case len(r.ToQueue) > message.MaxName, r.ToExchange != nil && len(*r.ToExchange) > message.MaxName, r.RoutingKey != nil && len(*r.RoutingKey) > message.MaxName:
		return wrong("names and keys have at most %d bytes", message.MaxName)
	case r.ToQueue == string(broker.Archive):
		return wrong("to_queue is the archive: discard puts letters there")
	case (r.Webhook != "") != (r.Action == RuleWebhook):
		return wrong("webhook is for the action webhook, which needs it")
	case r.Parked && r.Action != RuleRetry && r.Action != RuleSend:
		return wrong("parked is for retry and send")
	case r.Last != nil && !*r.Last && r.Action != RuleWebhook:
		return wrong("last can be false only for webhook: a letter can go one way only")
	}
	return nil
}

// errand is what the rule's job does. REQUIRES: the rule moves letters.
func (r *Rule) errand() (letters.Action, How) {
	how := How{ToQueue: r.ToQueue, ToExchange: r.ToExchange, RoutingKey: r.RoutingKey}
	switch {
	case r.Action == RuleDiscard:
		return letters.Discard, how
	case r.Action == RuleSend && r.ToQueue != "":
		return letters.Park, how
	}
	return letters.Replay, how
}

// passes says whether rules that follow get all the letters that this one takes.
func (r *Rule) passes() bool { return r.Last != nil && !*r.Last }

// moves says whether the rule moves letters.
func (r *Rule) moves() bool {
	return r.Action == RuleRetry || r.Action == RuleSend || r.Action == RuleDiscard
}

// needsOrigin says whether the rule cannot move a letter of which nobody knows where it was first published.
func (r *Rule) needsOrigin() bool {
	return r.Action == RuleRetry && r.ToQueue == "" && (r.ToExchange == nil || r.RoutingKey == nil)
}

// leads says whether the letter itself says, at least in part, where the rule publishes it.
func (r *Rule) leads() bool {
	return r.needsOrigin() || r.Action == RuleSend && r.ToExchange != nil && r.RoutingKey == nil
}

// trusts says whether the rule may move the letter. What a client has put into headers, or imported, may name any exchange: the rule would
// publish there with rights that the client lacks.
func (r *Rule) trusts(l *letter.Letter) bool {
	return r.Parked || !r.leads() || !l.Parked && !l.History.Imported
}

// times is MaxTimes with its default; 0: there is no bound.
func (r *Rule) times() uint64 {
	switch r.Action {
	case RuleRetry:
		return cmp.Or(r.MaxTimes, defaultRetries)
	case RuleSend:
		return cmp.Or(r.MaxTimes, defaultSends)
	}
	return 0
}

// wait is how long a letter waits since its last death, in milliseconds. It is the same whenever somebody asks, so it is not stored. lot is a
// number of the letter's own, from which its jitter follows.
func (r *Rule) wait(replays, lot uint64) int64 {
	ms := float64(r.AfterMS)
	if r.Factor > 1 {
		ms *= math.Pow(r.Factor, float64(min(replays, maxTimesBound)))
	}
	ms = min(ms, float64(cmp.Or(r.MaxMS, maxAfter)))
	if r.JitterPercent > 0 {
		ms *= 1 + r.JitterPercent/100*(2*float64(lot>>11)/(1<<53)-1)
	}
	return int64(ms)
}

// lot is the number of a letter: any, but always the same. It is the end of SplitMix64.
func lot(incarnation uint64, id queue.ID) uint64 {
	z := incarnation*0x9e3779b97f4a7c15 + uint64(id)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// storedRule is a rule with what the store keeps of it.
type storedRule struct {
	Rule
	By       string `json:"by"`                 // whose rights it has: who has last changed it, or switched it on
	Operator bool   `json:"operator,omitempty"` // that was the operator of the node
	Account  string `json:"account,omitempty"`  // broker.AccountMark then; a restart compares
	Revealed bool   `json:"revealed,omitempty"` // it sees what masks hide: who set it may
	SetMS    int64  `json:"set_ms"`
	Job      uint64 `json:"job,omitempty"` // its standing job; 0: it moves nothing
	// Stopped is why a rule without a job is stopped; the job of another says it.
	Stopped string `json:"stopped,omitempty"`
	// Keeps are queues of which a rule that is stopped keeps letters from the rules that follow, as it did when it acted.
	Keeps []string `json:"keeps,omitempty"`
}

// activeRule is a rule that is on. It does not change, except for what is noted about it, and for Keeps, which is the watch's.
type activeRule struct {
	storedRule
	vhost  string
	queues *expression.Name // nil: all
	query  letter.Query
	conn   *broker.Connection // only the watch uses it

	stopped atomic.Bool            // it lacks a right; its job, or Stopped in its book, says which
	why     atomic.Pointer[string] // what keeps letters from going, nil: nothing did the last time
	waiting atomic.Int64           // letters that are not due
	tried   names                  // queues of whose letters it was to tell a webhook; guarded by Rules.mu
}

// compile makes a rule active. A rule that was checked compiles.
func (r *storedRule) compile(vhost message.VHost) (a *activeRule, err error) {
	a = &activeRule{storedRule: *r, vhost: string(vhost)}
	if r.Queues != "" {
		if a.queues, err = expression.CompileName(r.Queues); err != nil {
			return nil, wrongRule(r.Name, "queues '%s' is no regular expression: %v", r.Queues, err)
		}
	}
	if a.query, err = letter.ParseQuery(string(vhost), r.Match, 0); err != nil {
		return nil, wrongRule(r.Name, "%v", err)
	}
	return a, nil
}

// steps is what the rule's expressions cost, see expression.Steps.
func (a *activeRule) steps() int {
	n := a.query.Steps()
	if a.queues != nil {
		n += a.queues.Steps()
	}
	return n
}

// isFor says whether the rule is for letters of a queue. The archive is for people alone, and no letter is sent where it is.
func (a *activeRule) isFor(name message.QueueName) bool {
	return name != broker.Archive && (a.ToQueue == "" || a.ToQueue != string(name)) && (a.queues == nil || a.queues.MatchString(string(name)))
}

// pastOf says how often a letter was replayed, or moved by rules. stored is its own history. What a consumer has parked after a replay is
// another message, of which that is not known: again says so.
func pastOf(l *letter.Letter, stored []byte) (replays uint64, again bool) {
	if !l.Parked {
		return l.History.Replays, false
	}
	h, _ := deadletter.Parse(stored)
	return h.Replays, l.HasHeader("x-replayed-from")
}

// takes says whether the rule takes the letter: one that it cannot move, or may not move any more, goes to the rules that follow.
// behind is the letter as the masks of its virtual host show it.
func (a *activeRule) takes(l, behind *letter.Letter, replays uint64, again bool) bool {
	most := a.times()
	if _, _, known := l.History.Origin(); !known && a.needsOrigin() || !a.trusts(l) {
		return false
	}
	if a.Revealed {
		behind = l
	}
	return (most == 0 || replays < most) && !(again && a.Action == RuleRetry) && a.query.Match(behind)
}

// ruling is what the rules say of a letter.
type ruling struct {
	rule  *activeRule   // that moves it; nil: none does
	due   int64         // when
	tells []*activeRule // that tell webhooks of it
}

// asked is how far rules were asked about a letter.
type asked struct {
	ruling
	next int // of the rules, the one that is asked next
}

// ask asks rules, from asked.next on, until it is known what they say of a letter, or there is no time within the look for another one: then it says no.
// It asks one at least. behind is the letter as the masks of its virtual host show it.
func (r *asked) ask(rules []*activeRule, l, behind *letter.Letter, stored []byte, incarnation uint64, id queue.ID, within func() bool) (whole bool) {
	if len(rules) == 0 {
		return true
	}
	replays, again := pastOf(l, stored)
	for begin := r.next; r.next < len(rules); {
		if r.next > begin && !within() {
			return false
		}
		a := rules[r.next]
		r.next++
		switch {
		case !a.takes(l, behind, replays, again):
		case a.Action == RuleWebhook:
			if r.tells = append(r.tells, a); !a.passes() {
				return true
			}
		case a.moves():
			r.rule, r.due = a, l.Died+a.wait(replays, lot(incarnation, id))
			return true
		default:
			return true
		}
	}
	return true
}

// same says whether two rules are the same but for being on.
func (r *Rule) same(o *Rule) bool {
	text := func(p *string) string {
		if p == nil {
			return "\x00"
		}
		return *p
	}
	a, b := *r, *o
	if a.Match = nil; text(a.ToExchange) != text(b.ToExchange) || text(a.RoutingKey) != text(b.RoutingKey) || a.passes() != b.passes() {
		return false
	}
	return a.Name == b.Name && a.Queues == b.Queues && a.Action == b.Action && a.AfterMS == b.AfterMS && a.Factor == b.Factor && a.MaxMS == b.MaxMS &&
		a.JitterPercent == b.JitterPercent && a.MaxTimes == b.MaxTimes && a.ToQueue == b.ToQueue && a.Webhook == b.Webhook && a.Parked == b.Parked &&
		maps.EqualFunc(r.Match, o.Match, slices.Equal[[]string])
}
