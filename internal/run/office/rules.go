package office

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/safety/bug"
)

// Rules are the rules of a node, with the watch over arriving letters that carries them out. Any number of goroutines may use them.
type Rules struct {
	f     *Office
	b     *broker.Broker
	jobs  *Jobs
	hooks *Webhooks
	log   *slog.Logger
	now   func() int64
	life  context.Context
	end   context.CancelFunc
	work  sync.WaitGroup
	wake  chan struct{} // has one token when the watch is to look
	watch *watch

	rights atomic.Bool // rights of users may have changed: the watch looks at those of the rules
	hooked atomic.Bool // webhooks have changed: the watch tries those that could not be told

	mu    sync.Mutex // guards what follows. Who holds it waits for no declaration: see broker.OnVHostEnd
	books map[message.VHost]*book
	told  map[toldKey]*toldPlace
}

// book are the rules of a virtual host. It does not change, except for Stopped and Keeps.
type book struct {
	revision  int64 // rises with each change; 0: there was none
	threshold int
	rules     []storedRule
	active    []*activeRule // those that are on, in their order
	steps     int           // of the expressions of all rules, also of those that are off
}

// count counts what a rule costs, and refuses one beyond maxRuleSteps.
func (b *book) count(a *activeRule) error {
	if b.steps += a.steps(); b.steps > maxRuleSteps {
		return wrongRule(a.Name, "the regular expressions of the rules of a virtual host, from the first to this one, have %d steps together, %d at most (a repetition counts as often as it may repeat)", b.steps, maxRuleSteps)
	}
	return nil
}

// The keys of records of rules, after datadir.RecordPrefix; see appendKey.
//
//	rules/ | virtual host | 0            a ruleRecord
//	told/  | virtual host | hash u64     a toldPlace: how far a rule has told its webhook of the letters of a queue
const (
	rulesPrefix = "rules/"
	toldPrefix  = "told/"
)

// ruleRecord is the form of a book in the store.
type ruleRecord struct {
	Version   int          `json:"version"`
	Revision  int64        `json:"revision,omitempty"`
	Threshold *int         `json:"threshold,omitempty"` // nil: DefaultThreshold
	Rules     []storedRule `json:"rules"`
}

const ruleVersion = 1

// maxRuleBytes is how large the record of a virtual host may be.
const maxRuleBytes = 512 << 10

// DefaultThreshold is how many messages a queue that gets letters may hold before an event tells of it.
const DefaultThreshold = 1000

const maxThreshold = 1_000_000_000

// newRules reads the rules of an office, and begins to carry them out. Close ends it.
func newRules(f *Office) (*Rules, error) {
	r := &Rules{
		f: f, b: f.b, jobs: f.Jobs, hooks: f.Webhooks, log: f.Logger, now: f.deaths, wake: make(chan struct{}, 1),
		books: map[message.VHost]*book{}, told: map[toldKey]*toldPlace{},
	}
	r.life, r.end = context.WithCancel(context.Background())
	r.watch = newWatch(r)
	if err := r.load(); err != nil {
		r.end()
		return nil, err
	}
	r.b.OnVHostEnd(r.endVHost)
	r.b.WatchArrivals(r.poke)
	r.b.OnRightsChange(func() { r.rights.Store(true); r.poke() })
	r.hooks.changed(func() { r.hooked.Store(true); r.poke() })
	if !f.idle {
		r.work.Go(bug.Guarded(r.log, "the watch over arriving letters", r.watch.run))
	}
	r.poke()
	return r, nil
}

// Close ends the watch. It is called before the jobs are closed.
func (r *Rules) Close() {
	r.end()
	r.work.Wait()
	r.b.WantArrivals(false)
}

// poke makes the watch look. It does not block.
func (r *Rules) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// load reads what the store has. What cannot be read stays there and is logged.
func (r *Rules) load() error {
	for _, kind := range []string{rulesPrefix, toldPrefix} {
		if err := endStrays(r.b, kind); err != nil {
			return err
		}
	}
	records := map[message.VHost]ruleRecord{}
	err := r.b.RangeRecords(rulesPrefix, func(key, value []byte) error {
		name, _, ok := splitKey(key, rulesPrefix)
		var rec ruleRecord
		if err := json.Unmarshal(value, &rec); !ok || err != nil || rec.Version != ruleVersion {
			r.log.Error("The rules of a virtual host cannot be read: none of them is carried out", "vhost", name, "error", err, "version", rec.Version)
			return nil
		}
		records[message.VHost(name)] = rec
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.loadTold(); err != nil {
		return err
	}
	if err := r.endTold(); err != nil {
		return err
	}
	known := map[uint64]bool{}
	for name, rec := range records {
		for i := range rec.Rules {
			known[rec.Rules[i].Job] = true
		}
		b, err := r.open(name, rec)
		if err != nil {
			r.log.Error("The rules of a virtual host cannot be read: none of them is carried out", "vhost", string(name), "error", err)
			continue
		}
		r.books[name] = b
	}
	for name := range r.books {
		r.masked(name) // a crash may have come between the masks and this; an earlier release did not do it
	}
	return r.jobs.cancelStanding(func(id uint64) bool { return known[id] })
}

// open makes the book of a record at the start of the node.
func (r *Rules) open(vhost message.VHost, rec ruleRecord) (*book, error) {
	b := &book{revision: rec.Revision, threshold: DefaultThreshold, rules: rec.Rules}
	if rec.Threshold != nil {
		b.threshold = *rec.Threshold
	}
	for i := range b.rules {
		stored := &b.rules[i]
		if err := stored.check(); err != nil {
			return nil, err
		}
		a, err := stored.compile(vhost)
		if err == nil {
			err = b.count(a)
		}
		if err != nil {
			return nil, err
		}
		if !stored.On {
			continue
		}
		b.active = append(b.active, a)
		a.stopped.Store(stored.Stopped != "")
		if stored.moves() {
			j, ok := r.jobs.Job(stored.Job)
			a.stopped.Store(!ok || j.State != Running)
		}
		a.conn = r.b.As(stored.By, vhost) // a rule that is stopped keeps letters of queues that its user may read
		switch c, ok := r.b.AsAccount(stored.By, stored.Account, vhost); {
		case stored.Operator:
			a.conn = r.b.AsOperator(stored.By, vhost)
		case ok:
			a.conn = c
		case a.stopped.Load():
		default: // it may be another person of this name
			a.stopped.Store(true)
			why := fmt.Sprintf("the account of user '%s' is gone, or has another password than when the user set the rule, and the node was restarted: the rule goes on when somebody switches it on", stored.By)
			if !stored.moves() {
				stored.Stopped = why // and so again at the next start
			} else if err := r.jobs.halt(stored.Job, why); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// endVHost forgets the rules of a virtual host that is deleted. The watch cancels their jobs.
func (r *Rules) endVHost(name message.VHost, _ broker.Doer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.books, name)
	for k := range r.told {
		if k.vhost == name {
			delete(r.told, k)
		}
	}
	endRecords(r.b, rulesPrefix, name)
	endRecords(r.b, toldPrefix, name)
	r.watch.strays.Store(true)
	r.poke()
}

// RuleBook are the rules of a virtual host, as the API shows them.
type RuleBook struct {
	Rules     []RuleShown `json:"rules"`
	Threshold int         `json:"threshold"`
	Revision  string      `json:"revision"` // another one after each change
}

// RuleShown is a rule with what it has done.
type RuleShown struct {
	Rule
	State   string `json:"state"` // on, off, or stopped
	Why     string `json:"why,omitempty"`
	By      string `json:"by"`
	SetMS   int64  `json:"set_ms"`
	Job     string `json:"job,omitempty"` // the id of its job; "": it moves nothing
	Acted   uint64 `json:"acted"`         // letters that it has moved, or told of
	Waiting int64  `json:"waiting"`       // letters that are not due, or cannot go now
	LastMS  int64  `json:"last_ms"`       // 0: it has not acted

	Hidden bool `json:"counts_hidden,omitempty"` // whoever asks may not read all queues that it is for: what it does is not shown

	revealed bool  // who set it saw what masks hide
	took     names // what it has taken letters of
}

// RuleFacts are the keys of a RuleShown that are no part of the rule: who sends them back changes nothing.
var RuleFacts = []string{"state", "why", "by", "set_ms", "job", "acted", "waiting", "last_ms", "counts_hidden"}

// Book returns the rules of a virtual host.
func (r *Rules) Book(vhost message.VHost) RuleBook {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.show(vhost)
}

// show is Book. REQUIRES: r.mu is held.
func (r *Rules) show(vhost message.VHost) RuleBook {
	b := r.books[vhost]
	shown := RuleBook{Rules: []RuleShown{}, Threshold: DefaultThreshold, Revision: b.name()}
	if b == nil {
		return shown
	}
	shown.Threshold = b.threshold
	for i := range b.rules {
		s := &b.rules[i]
		v := RuleShown{Rule: s.Rule, State: "off", By: s.By, SetMS: s.SetMS, revealed: s.Revealed, took: names{}.with(s.Keeps...)}
		if s.Operator {
			v.By = Local
		}
		if s.On {
			v.State = "on"
		}
		if j, ok := r.jobs.Job(s.Job); ok && s.Job != 0 {
			v.Job = strconv.FormatUint(s.Job, 10)
			v.Acted, v.LastMS = j.Moved, j.LastMS
			if v.took = v.took.with(j.took...); !j.took.whole() {
				v.took = nil
			}
			if s.On && j.State == Halted {
				v.State, v.Why = "stopped", j.Why
			}
		}
		if s.On && s.Stopped != "" {
			v.State, v.Why = "stopped", s.Stopped
		}
		for k, p := range r.told {
			if s.Action == RuleWebhook && k.vhost == vhost && k.rule == s.Name {
				v.Acted, v.LastMS = v.Acted+p.Told, max(v.LastMS, p.LastMS)
				switch {
				case p.Told == 0:
				case k.incarnation != goneQueues:
					v.took = v.took.with(p.Queue)
				case p.Gone.whole():
					v.took = v.took.with(p.Gone...)
				default:
					v.took = nil
				}
			}
		}
		if at := slices.IndexFunc(b.active, func(a *activeRule) bool { return a.Name == s.Name }); at >= 0 {
			a := b.active[at]
			if v.took = v.took.with(a.tried...); !a.stopped.Load() {
				v.Waiting = a.waiting.Load()
			}
			if why := a.why.Load(); why != nil && v.Why == "" {
				v.Why = *why
			}
		}
		shown.Rules = append(shown.Rules, v)
	}
	return shown
}

// maxKeeps is of how many queues a rule that is stopped keeps letters when it may not read them.
const maxKeeps = 1000

// halt stops a rule, which says why, until somebody switches it on. keeps are the queues in which it acted, if its user may not read one of them any more.
func (r *Rules) halt(a *activeRule, why string, keeps []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop(a, why, keeps)
}

// stop is halt. REQUIRES: r.mu is held.
func (r *Rules) stop(a *activeRule, why string, keeps []string) {
	vhost := message.VHost(a.vhost)
	b := r.books[vhost]
	if b == nil || !slices.Contains(b.active, a) || a.stopped.Swap(true) {
		return
	}
	s := &b.rules[slices.IndexFunc(b.rules, func(s storedRule) bool { return s.Name == a.Name })]
	s.Keeps = keeps[:min(len(keeps), maxKeeps)]
	if len(keeps) > 0 { // the watch says it, which alone reads it
		a.Keeps = s.Keeps
	}
	if a.moves() {
		_ = r.jobs.halt(a.Job, why) // a failure has ended the node
	} else {
		s.Stopped = why
		r.log.Warn("A rule is stopped", "vhost", a.vhost, "rule", a.Name, "user", a.By, "why", why)
	}
	value, _ := json.Marshal(ruleRecord{Version: ruleVersion, Revision: b.revision, Threshold: &b.threshold, Rules: b.rules}) // it was written before
	_ = r.b.PutRecords(mutation.All([]mutation.Change{{Key: appendKey([]byte(datadir.RecordPrefix), rulesPrefix, string(vhost), 0), Value: value}}), false)
}

// name is the book's revision as it is shown. b may be nil.
func (b *book) name() string {
	if b == nil {
		return "0"
	}
	return strconv.FormatInt(b.revision, 36)
}

// Put sets all rules of a virtual host, in their order, and the threshold, with the rights of c. nil leaves what there is.
// A rule that is as it was keeps the rights of who has set it.
func (r *Rules) Put(c *broker.Connection, by Actor, rules []Rule, threshold *int, reveal bool) (RuleBook, error) {
	return r.PutIf(nil, c, by, rules, threshold, reveal)
}

// PutIf is Put if the present revision is one that the caller means; nil means all.
func (r *Rules) PutIf(is func(revision string) bool, c *broker.Connection, by Actor, rules []Rule, threshold *int, reveal bool) (RuleBook, error) {
	return r.change(is, c, Act{Actor: by, What: "rules.set"}, threshold, func(before []Rule) ([]Rule, error) {
		if rules == nil {
			return before, nil
		}
		return rules, nil
	}, "", reveal)
}

// PutRule sets one rule: in place of the one of its name, or as the last.
func (r *Rules) PutRule(c *broker.Connection, by Actor, rule Rule, reveal bool) (RuleBook, error) {
	return r.PutRuleIf(nil, c, by, rule, reveal)
}

// PutRuleIf is PutRule on the condition of PutIf.
func (r *Rules) PutRuleIf(is func(revision string) bool, c *broker.Connection, by Actor, rule Rule, reveal bool) (RuleBook, error) {
	return r.change(is, c, Act{Actor: by, What: "rule.set", Object: rule.Name}, nil, func(before []Rule) ([]Rule, error) {
		if i := slices.IndexFunc(before, func(o Rule) bool { return o.Name == rule.Name }); i >= 0 {
			before[i] = rule
			return before, nil
		}
		return append(before, rule), nil
	}, "", reveal)
}

// Switch switches a rule on or off. One that is switched on has the rights of c from now on.
func (r *Rules) Switch(c *broker.Connection, by Actor, name string, on, reveal bool) (RuleBook, error) {
	return r.SwitchIf(nil, c, by, name, on, reveal)
}

// SwitchIf is Switch on the condition of PutIf.
func (r *Rules) SwitchIf(is func(revision string) bool, c *broker.Connection, by Actor, name string, on, reveal bool) (RuleBook, error) {
	renewed, what := "", "rule.off"
	if on {
		renewed, what = name, "rule.on"
	}
	return r.change(is, c, Act{Actor: by, What: what, Object: name}, nil, func(before []Rule) ([]Rule, error) {
		i := slices.IndexFunc(before, func(o Rule) bool { return o.Name == name })
		if i < 0 {
			return nil, noRule(c.VHost, name)
		}
		before[i].On = on
		return before, nil
	}, renewed, reveal)
}

// Remove removes a rule. What it has moved stays where it is.
func (r *Rules) Remove(c *broker.Connection, by Actor, name string) (RuleBook, error) {
	return r.RemoveIf(nil, c, by, name)
}

// RemoveIf is Remove on the condition of PutIf.
func (r *Rules) RemoveIf(is func(revision string) bool, c *broker.Connection, by Actor, name string) (RuleBook, error) {
	return r.change(is, c, Act{Actor: by, What: "rule.removed", Object: name}, nil, func(before []Rule) ([]Rule, error) {
		i := slices.IndexFunc(before, func(o Rule) bool { return o.Name == name })
		if i < 0 {
			return nil, noRule(c.VHost, name)
		}
		return slices.Delete(before, i, i+1), nil
	}, "", false)
}

func noRule(vhost message.VHost, name string) error {
	return refuse(NotFound, "there is no rule '%s' in virtual host '%s'", name, vhost)
}

// change changes the rules of the virtual host of c. It returns when they are on disk. renewed is a rule that gets the rights of c even if it
// is as before. is is that of PutIf.
func (r *Rules) change(is func(revision string) bool, c *broker.Connection, act Act, threshold *int, f func([]Rule) ([]Rule, error), renewed string, reveal bool) (RuleBook, error) {
	vhost, lost := c.VHost, r.lost(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.b.HasVHost(vhost, 0) {
		return RuleBook{}, topology.Refuse(topology.NotFound, "there is no virtual host '%s'", vhost)
	}
	before := r.books[vhost]
	if before == nil {
		before = &book{threshold: DefaultThreshold}
	}
	if now := r.books[vhost].name(); is != nil && !is(now) {
		return RuleBook{}, refuse(Stale, "the rules of virtual host '%s' were changed since you read them (they are revision %s now): read them again, and make your change to those", vhost, now)
	}
	var old []Rule
	for i := range before.rules {
		old = append(old, before.rules[i].Rule)
	}
	rules, err := f(old)
	if err != nil {
		return RuleBook{}, err
	}
	after := &book{revision: max(before.revision+1, r.now()), threshold: before.threshold} // none that a virtual host of that name had before
	if threshold != nil {
		if after.threshold = *threshold; *threshold < 0 || *threshold > maxThreshold {
			return RuleBook{}, refuse(BadRequest, "threshold is %d; it must be from 1 to %d, or 0 for none", *threshold, maxThreshold)
		}
	}
	if len(rules) > maxRules {
		return RuleBook{}, refuse(BadRequest, "%d rules are too many; a virtual host has at most %d", len(rules), maxRules)
	}
	if err := r.draft(c, before, after, rules, renewed, reveal); err != nil {
		return RuleBook{}, err
	}
	if err := mayOrder(c, before, after, lost); err != nil {
		return RuleBook{}, err
	}
	act.VHost, act.Count = string(vhost), uint64(len(rules))
	if err := r.store(act, vhost, before, after); err != nil {
		return RuleBook{}, err
	}
	r.books[vhost] = after
	r.poke()
	return r.show(vhost), nil
}

// lost are the rules of the user of c that stopped when the user could not read a queue any more, if that is still so.
func (r *Rules) lost(c *broker.Connection) map[string]bool {
	kept := map[string][]string{}
	r.mu.Lock()
	if b := r.books[c.VHost]; b != nil {
		for i := range b.rules {
			if s := &b.rules[i]; s.On && s.By == c.User && len(s.Keeps) > 0 {
				kept[s.Name] = s.Keeps
			}
		}
	}
	r.mu.Unlock()
	lost := map[string]bool{}
	for name, queues := range kept {
		lost[name] = slices.ContainsFunc(queues, func(q string) bool { return !c.MayRead(message.QueueName(q)) })
	}
	return lost
}

// mayOrder refuses a change after which a rule of another user gets other letters since rules in front of it, of others too, are gone, off, changed or in
// another place: it would act on these with rights that are not those of who changes that. A rule of one's own keeps only letters that one may read from those
// behind it, so it may come, go and change anywhere. Administrators may do all.
func mayOrder(c *broker.Connection, before, after *book, lost map[string]bool) error {
	if c.Administers() {
		return nil
	}
	own := func(s *storedRule) bool { return s.By == c.User && !s.Operator && !lost[s.Name] }
	// front are the rules of others in front of one that may keep letters from it, as they are set.
	front := func(b *book, name string) (list []string) {
		for i := range b.rules {
			switch s := &b.rules[i]; {
			case s.Name == name:
				return list
			case s.On && !own(s) && !s.passes():
				list = append(list, fmt.Sprintf("%s\x00%d\x00%s", s.By, s.SetMS, s.Name))
			}
		}
		return list
	}
	for i := range after.rules {
		s := &after.rules[i]
		if s.On && !(s.By == c.User && !s.Operator) && !slices.Equal(front(before, s.Name), front(after, s.Name)) {
			return refuse(Forbidden, "rule '%s' acts with the rights of user '%s', and this changes which letters other users' rules before it leave to it: an administrator may do that, or who has taken over the rules behind by switching them on, from the last one", s.Name, s.By)
		}
	}
	return nil
}

// draft checks the rules and puts them into the book after.
func (r *Rules) draft(c *broker.Connection, before, after *book, rules []Rule, renewed string, reveal bool) error {
	names := map[string]bool{}
	for i := range rules {
		rule := &rules[i]
		if err := rule.check(); err != nil {
			return err
		}
		if names[rule.Name] {
			return wrongRule(rule.Name, "there are two of this name")
		}
		names[rule.Name] = true
		var was *storedRule
		if at := slices.IndexFunc(before.rules, func(o storedRule) bool { return o.Name == rule.Name }); at >= 0 {
			was = &before.rules[at]
			// Who is shown a rule behind the mask sends it back so.
			if mask := r.f.masks.Mask(string(c.VHost)); len(rule.Match) > 0 && maps.EqualFunc(rule.Match, hideFilter(mask, was.Match, !was.Revealed), slices.Equal) {
				rule.Match = was.Match
			}
		}
		s := storedRule{Rule: *rule}
		if was != nil {
			s.Job = was.Job
		}
		kept := was != nil && was.same(rule) && (was.On || !rule.On) && rule.Name != renewed
		if kept {
			s = *was
			s.On = rule.On
		} else {
			s.By, s.Operator, s.Account, s.SetMS = c.User, c.IsOperator(), r.b.AccountMark(c.User), r.now()
		}
		if s.Action == RuleWebhook && !kept {
			if err := r.hooks.usable(s.Webhook, c.VHost); err != nil {
				return wrongRule(s.Name, "%v", err)
			}
		}
		if !kept {
			s.Revealed = reveal
		}
		a, err := s.compile(c.VHost)
		if err == nil {
			err = after.count(a)
		}
		if err == nil && !kept {
			err = r.mayAsk(a)
		}
		if err != nil {
			return err
		}
		if s.On {
			if a.conn = c; kept {
				if at := slices.IndexFunc(before.active, func(o *activeRule) bool { return o.Name == s.Name }); at >= 0 {
					a.conn = before.active[at].conn
					a.stopped.Store(before.active[at].stopped.Load())
				}
			}
			after.active = append(after.active, a)
		}
		after.rules = append(after.rules, s)
	}
	return nil
}

// mayAsk refuses a rule whose filters would tell what masks hide, unless it may see that: what it does would tell.
func (r *Rules) mayAsk(a *activeRule) error {
	if name := a.query.Asks(r.f.masks.Mask(a.vhost)); name != "" && !a.Revealed {
		return refuse(Forbidden, "rule '%s': filter '%s' would tell what the masks of vhost '%s' hide; it needs ?reveal=true, and the tag reveal", a.Name, name, a.vhost)
	}
	return nil
}

// masked stops the rules of a virtual host whose filters would tell what its masks, which have changed, hide: those that mayAsk would refuse.
func (r *Rules) masked(vhost message.VHost) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mask := r.f.masks.Mask(string(vhost))
	b := r.books[vhost]
	if b == nil {
		return
	}
	for _, a := range b.active {
		if name := a.query.Asks(mask); name != "" && !a.Revealed {
			r.stop(a, fmt.Sprintf("filter '%s' would tell what the masks of vhost '%s' hide: the rule goes on when somebody with the tag reveal switches it on with ?reveal=true, or has another filter", name, vhost), nil)
		}
	}
}

// store writes the book, with the jobs of its rules. A crash between the two leaves a job that no rule has, which the next start cancels.
func (r *Rules) store(act Act, vhost message.VHost, before, after *book) error {
	record := func() ([]byte, error) {
		return json.Marshal(ruleRecord{Version: ruleVersion, Revision: after.revision, Threshold: &after.threshold, Rules: after.rules})
	}
	if value, err := record(); err != nil || len(value) > maxRuleBytes {
		return cmp.Or(err, refuse(BadRequest, "the rules have %d bytes; those of a virtual host have at most %d", len(value), maxRuleBytes))
	}
	for i := range after.rules {
		s := &after.rules[i]
		if !s.moves() {
			s.Job = 0
			continue
		}
		if at := slices.IndexFunc(after.active, func(a *activeRule) bool { return a.Name == s.Name }); at >= 0 && after.active[at].stopped.Load() {
			continue // its job says why
		}
		id, err := r.jobs.standing(s.Job, vhost, s)
		if err != nil {
			return err
		}
		s.Job = id
		if at := slices.IndexFunc(after.active, func(a *activeRule) bool { return a.Name == s.Name }); at >= 0 {
			after.active[at].Job = id
		}
	}
	value, err := record()
	if err != nil {
		return err
	}
	changes := []mutation.Change{{Key: appendKey([]byte(datadir.RecordPrefix), rulesPrefix, string(vhost), 0), Value: value}}
	if len(after.rules) == 0 && after.threshold == DefaultThreshold {
		changes[0].Value = nil
	}
	for k, p := range r.told {
		if k.vhost != vhost {
			continue
		}
		is := func(s storedRule) bool { return s.Name == k.rule && s.Action == RuleWebhook }
		at, was := slices.IndexFunc(after.rules, is), slices.IndexFunc(before.rules, is)
		switch {
		case at < 0:
			changes = append(changes, mutation.Change{Key: p.key(vhost)})
			delete(r.told, k)
		case was >= 0 && after.rules[at].Queues != before.rules[was].Queues: // it is counted for who may read the queues that it is for now: see Sight
			c := *p
			c.Told, c.LastMS, c.Gone = 0, 0, nil
			if k.incarnation == goneQueues {
				c.Gone = names{}
			}
			changes, r.told[k] = append(changes, c.change(vhost)), &c
		}
	}
	told := ruleRecord{Version: ruleVersion, Threshold: &after.threshold, Rules: slices.Clone(after.rules)}
	for i := range told.Rules {
		s := &told.Rules[i]
		s.Match = hideFilter(r.f.masks.Mask(string(vhost)), s.Match, !s.Revealed)
	}
	text, _ := json.Marshal(told) // it was written before
	if i := slices.IndexFunc(told.Rules, func(s storedRule) bool { return s.Name == act.Object }); i >= 0 {
		text, _ = json.Marshal(&told.Rules[i].Rule)
	}
	act.Detail = string(text)
	if err := r.f.audit.With(act, changes); err != nil {
		return err
	}
	has := map[uint64]bool{}
	for i := range after.rules {
		has[after.rules[i].Job] = true
	}
	return r.jobs.cancelStanding(func(id uint64) bool {
		return has[id] || !slices.ContainsFunc(before.rules, func(s storedRule) bool { return s.Job == id })
	})
}

// Trial is what a rule would do with the letters that there are.
type Trial struct {
	Examined int          `json:"examined"`  // messages
	Matched  int          `json:"matched"`   // letters that it takes
	TooOften int          `json:"too_often"` // letters that it would take if they had not been replayed or sent max_times times
	NoOrigin int          `json:"no_origin"` // letters that it would take if it were known where they were first published
	Parked   int          `json:"parked"`    // letters that it would take with parked: where they were first published is a client's word
	Due      int          `json:"due"`       // of Matched: it would act at once
	ByQueue  []TrialQueue `json:"by_queue"`
	First    []Row        `json:"first"`
	Stopped  *string      `json:"stopped"` // time: there is more, which was not looked at
}

// TrialQueue is how many letters of a queue a rule would take.
type TrialQueue struct {
	Queue   message.QueueName `json:"queue"`
	Letters int               `json:"letters"`
}

// How long a trial looks, and how many letters it shows.
const trialTime, trialRows = 10 * time.Second, 20

// Try says what a rule would do with the letters of the queues that c may read, if it were the only one. Nothing changes.
func (r *Rules) Try(ctx context.Context, c *broker.Connection, rule Rule, reveal bool) (t Trial, err error) {
	t.ByQueue, t.First = []TrialQueue{}, []Row{}
	rule.Name = cmp.Or(rule.Name, "try")
	if err := rule.check(); err != nil {
		return t, err
	}
	a, err := (&storedRule{Rule: rule, Revealed: reveal}).compile(c.VHost)
	if err == nil {
		err = r.mayAsk(a)
	}
	if err != nil {
		return t, err
	}
	vhost, end, at := c.VHost, time.Now().Add(trialTime), r.now()
	scope := Scope{VHost: &vhost, May: func(q broker.QueueInfo) bool { return a.isFor(q.Decl.Name) && c.MayRead(q.Decl.Name) }}
	reader := letter.NewReader(r.f.Names) // the filters tell nothing that the mask hides
	if !reveal {
		reader = reader.Masked(r.f.masks.Mask(string(vhost)))
	}
	for _, q := range r.f.queues(&scope) {
		e, err := letters.Extent(r.b, q)
		if err != nil {
			continue // it was deleted
		}
		n := 0
		for cursor, done := e.There, false; !done; {
			if time.Now().After(end) {
				stopped := "time"
				t.Stopped = &stopped
				break
			}
			within, over, err := r.f.look(ctx, c.User)
			if err != nil {
				return t, err
			}
			cursor, done, err = letters.Browse(ctx, r.b, q, cursor, lookSlice, func(v queue.View, rec message.Record, history []byte) bool {
				t.Examined++
				l, ok := reader.Read(rec, history)
				if !ok || !a.query.Match(l) {
					return within()
				}
				replays, again := pastOf(l, history)
				if !a.takes(l, l, replays, again) {
					switch _, _, known := l.History.Origin(); {
					case !known && a.needsOrigin():
						t.NoOrigin++
					case !a.trusts(l):
						t.Parked++
					default:
						t.TooOften++
					}
					return within()
				}
				n++
				if l.Died+a.wait(replays, lot(q.Incarnation(), v.ID)) <= at {
					t.Due++
				}
				if len(t.First) < trialRows {
					t.First = append(t.First, makeRow(q, &v, l))
				}
				return within()
			})
			over()
			if err != nil {
				break // it was deleted, or has no leader now
			}
		}
		if t.Matched += n; n > 0 {
			t.ByQueue = append(t.ByQueue, TrialQueue{q.Decl.Name, n})
		}
		if t.Stopped != nil {
			break
		}
	}
	slices.SortFunc(t.ByQueue, func(a, b TrialQueue) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Queue, b.Queue))
	})
	return t, nil
}
