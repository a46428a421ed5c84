package queue_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts do now into their files; read the difference before you keep it")

// Each file of testdata/scripts is one rule for one queue: commands at the margin, and indented below each what the
// queue does. README.md there explains the commands and the effects.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := (&player{t: t}).play(string(text))
			switch diff := cmp.Diff(string(text), got); {
			case diff == "":
			case *rewrite:
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s (-file +queue; go test -rewrite renews it):\n%s", file, diff)
			}
		})
	}
}

// start is the moment 0 of a script, in milliseconds since 1970.
const start = 1_700_000_000_000

// player plays a script. It is the queue's sink and stands for the code that runs a queue: it has a clock, sends
// deliveries to clients, and routes the dead to another queue at once.
type player struct {
	t         *testing.T
	m         *queue.Machine
	config    queue.Config
	settings  queue.Settings
	now       int64
	consumers map[string]*queue.Consumer
	names     []string            // of messages; their bodies are 1, 2, ...
	entries   map[string]queue.ID // by message, while it is in the queue
	holders   map[string]holder   // the holder of each message that is out
	died      deadletter.Reason   // of the entry for which Removed follows
	unused    bool                // and that was printed
	effects   strings.Builder
	prefix    string // the moment in front of effects, while time passes
}

type holder struct{ c *queue.Consumer }

// play returns the script with the effects of its commands.
func (p *player) play(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		switch line = strings.TrimRight(line, " \n"); {
		case strings.HasPrefix(line, " "):
			continue // an effect
		case line != "" && line[0] != '#':
			p.effects.Reset()
			p.command(strings.Fields(line))
			p.tick()
			if err := p.m.Check(); err != nil {
				p.t.Errorf("after %q: %v", line, err)
			}
			line += "\n" + strings.TrimSuffix(p.effects.String(), "\n")
			line = strings.TrimSuffix(line, "\n")
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

func (p *player) say(format string, args ...any) {
	p.effects.WriteString("  " + p.prefix + fmt.Sprintf(format, args...) + "\n")
}

func (p *player) command(words []string) {
	name, args := words[0], parseArguments(words[1:])
	switch name {
	case "queue":
		p.create(args)
	case "policy":
		p.configure(args)
		p.m.Configure(p.now, p.settings)
		p.flow(0)
	case "consume":
		p.consume(args)
	case "cancel":
		p.m.Detach(p.now, p.consumer(args))
		p.flow(0)
	case "close":
		p.close(p.consumer(args))
	case "credit":
		p.m.Credit(p.consumer(args), args.int("n", 1))
		p.flow(0)
	case "drain":
		p.flow(0)
		p.say("%d of the credit of %s end", p.m.Drain(p.consumer(args)), args.words[0])
	case "publish", "dead-letter":
		p.publish(args, name == "dead-letter")
	case "get":
		p.get(args)
	case "ack", "reject", "nack", "recover", "release":
		p.settle(name, args)
	case "wait":
		p.wait(args.duration(args.words[0]))
	case "touch":
		p.m.Touch(p.now)
	case "confirm":
		for _, name := range args.words {
			p.m.Bury(p.entries[name])
			p.say("%s is gone, its targets have it", name)
		}
		p.flow(0)
	case "purge":
		p.say("%d purged", p.m.Purge(nil))
		p.m.BuryRest(math.MaxInt)
	case "delete":
		p.m.Close()
		p.m.BuryRest(math.MaxInt)
	case "restart":
		if len(args.words) > 0 {
			p.now += args.duration(args.words[0])
		}
		p.restart()
	case "show":
		p.show()
	default:
		p.t.Fatalf("there is no command %q", name)
	}
}

func (p *player) create(args arguments) {
	p.config = queue.Config{
		Durable: true, Strict: args.has("strict"), SingleActive: args.has("single-active"), MaxPriority: args.int("max-priority", -1),
	}
	if args.has("quorum") {
		p.config.Type = queue.Quorum
	}
	p.settings = queue.Unlimited()
	p.configure(args)
	p.now, p.consumers, p.entries, p.holders = start, map[string]*queue.Consumer{}, map[string]queue.ID{}, map[string]holder{}
	p.unused = false
	p.m = queue.New(p.config, p.settings, &queue.Pages{}, p, p.now)
}

// configure changes the given settings.
func (p *player) configure(args arguments) {
	s := &p.settings
	s.DeadLetter = (s.DeadLetter || args.has("dead-letter")) && args.values["dead-letter"] != "off"
	s.LostAndFound = (s.LostAndFound || args.has("lost-and-found")) && args.values["lost-and-found"] != "off"
	s.AtLeastOnce = s.AtLeastOnce || args.has("at-least-once")
	s.TTL = args.milliseconds("message-ttl", s.TTL)
	s.Expires = args.milliseconds("expires", s.Expires)
	s.MaxLength = int64(args.int("max-length", int(s.MaxLength)))
	s.MaxBytes = int64(args.int("max-length-bytes", int(s.MaxBytes)))
	s.CountNack = (s.CountNack || args.has("count-nack")) && args.values["count-nack"] != "off"
	s.DeliveryLimit = int64(args.int("delivery-limit", int(s.DeliveryLimit)))
	s.ConsumerTimeout = args.milliseconds("consumer-timeout", s.ConsumerTimeout)
	for _, o := range []queue.Overflow{queue.DropHead, queue.RejectPublish, queue.RejectPublishDLX} {
		if args.values["overflow"] == o.String() {
			s.Overflow = o
		}
	}
	for _, r := range []queue.RetryType{queue.RetryDisabled, queue.RetryAll, queue.RetryFailed, queue.RetryReturned} {
		if args.values["delayed-retry-type"] == r.String() {
			s.Retry.Type = r
		}
	}
	s.Retry.Min = args.milliseconds("delayed-retry-min", s.Retry.Min)
	s.Retry.Max = args.milliseconds("delayed-retry-max", s.Retry.Max)
	if factor, ok := args.values["delayed-retry-multiplier"]; ok {
		s.Retry.Multiplier, _ = strconv.ParseFloat(factor, 64)
	}
	if rule, ok := args.values["breaker"]; ok {
		s.Breaker = queue.Breaker{}
		if parts := strings.Split(rule, "/"); len(parts) == 3 {
			s.Breaker.Deaths, _ = strconv.ParseInt(parts[0], 10, 64)
			s.Breaker.Percent, _ = strconv.ParseInt(strings.TrimSuffix(parts[1], "%"), 10, 64)
			s.Breaker.Window = args.duration(parts[2])
		}
	}
}

func (p *player) consume(args arguments) {
	c := &queue.Consumer{
		Tag: args.words[0], NoAck: args.has("no-ack"), Exclusive: args.has("exclusive"), Metered: args.has("metered"),
		Priority: int64(args.int("priority", 0)), Prefetch: args.int("prefetch", 0), Timeout: args.milliseconds("timeout", 0),
	}
	if !p.m.Attach(p.now, c) {
		p.say("%s is refused, the queue is in exclusive use", c.Tag)
		return
	}
	p.consumers[c.Tag] = c
	p.flow(0)
}

func (p *player) consumer(args arguments) *queue.Consumer {
	c, ok := p.consumers[args.words[0]]
	if !ok {
		p.t.Fatalf("there is no consumer %q", args.words[0])
	}
	return c
}

// close ends the channel of a consumer.
func (p *player) close(c *queue.Consumer) {
	p.m.Detach(p.now, c)
	for _, held := range p.m.HeldBy(c) {
		p.m.Return(p.now, held.ID, c, queue.ReturnClosed)
	}
	p.flow(0)
}

func (p *player) publish(args arguments, dead bool) {
	for _, name := range args.words {
		p.names = append(p.names, name)
		e := &queue.Entry{
			Content: queue.Content{
				Body: message.Ref(len(p.names)), Size: uint32(args.int("size", 1)), Logged: !args.has("transient"),
				Counts: queue.Counts{Deliveries: uint32(args.int("failed", 0))},
			},
			Priority: args.int("priority", -1), TTL: args.milliseconds("ttl", -1),
		}
		e.Redelivered = e.Counts.Deliveries > 0
		enter := p.m.Enqueue
		if dead {
			enter = p.m.Force
		}
		id, result := enter(p.now, e)
		switch result {
		case queue.Stored:
			p.entries[name] = id
			p.flow(id)
		case queue.Refused, queue.RefusedDead:
			p.say("%s is refused", name)
		}
	}
}

func (p *player) get(args arguments) {
	d, ok := p.m.Get(p.now, args.has("no-ack"))
	if !ok {
		p.say("nothing is ready")
		return
	}
	p.given("get", nil, &d)
}

func (p *player) settle(how string, args arguments) {
	for _, name := range args.words {
		id, by := p.entries[name], p.holders[name].c
		ok := false
		switch requeue := args.has("requeue"); {
		case how == "ack":
			ok = p.m.Ack(p.now, id, by)
		case how == "reject" && requeue:
			ok = p.m.ReturnFor(p.now, id, by, queue.ReturnReject, args.milliseconds("delay", 0))
		case how == "nack" && requeue:
			ok = p.m.ReturnFor(p.now, id, by, queue.ReturnNack, args.milliseconds("delay", 0))
		case how == "recover":
			ok = p.m.Return(p.now, id, by, queue.ReturnRecover)
		case how == "release":
			ok = p.m.Return(p.now, id, by, queue.ReturnReleased)
		default:
			ok = p.m.Reject(p.now, id, by, how == "reject")
		}
		if !ok {
			p.say("%s is not out", name)
		}
	}
	p.flow(0)
}

// flow is called after a command, as by the code that runs a queue.
func (p *player) flow(id queue.ID) {
	p.m.Flow(p.now, id)
	p.routeDeaths()
}

// wait lets time pass, step by step to each moment at which the queue has something to do.
func (p *player) wait(ms int64) {
	end := p.now + ms
	for due := p.m.NextDue(); due <= end; due = max(p.m.NextDue(), p.now+1) {
		p.now = due
		p.prefix = p.moment(p.now) + ": "
		p.tick()
	}
	p.now, p.prefix = end, ""
}

// tick does what is due.
func (p *player) tick() {
	for p.m.NextDue() <= p.now && p.m.Tick(p.now, 100) {
	}
	p.routeDeaths()
	if p.m.Unused(p.now) && !p.unused {
		p.unused = true
		p.say("the queue is unused, it is to be deleted")
	}
}

// routeDeaths decides what becomes of the dead: another queue takes them at once, or, at least once, they are held
// until it has.
func (p *player) routeDeaths() {
	for _, d := range p.m.Deaths(math.MaxInt, nil) {
		name := p.name(d.Body)
		if p.settings.AtLeastOnce {
			p.m.Hold(d.ID)
			p.say("%s dies, %s, and is held%s", name, d.Reason, counts(d.Counts))
			continue
		}
		p.m.Bury(d.ID)
		delete(p.entries, name)
		p.say("%s dies, %s%s", name, d.Reason, counts(d.Counts))
	}
}

// restart is a crash and a later start. The queue is as its log says: what was not logged is gone, and what was out
// comes back.
func (p *player) restart() {
	old := p.m
	p.m = queue.New(p.config, p.settings, &queue.Pages{}, p, p.now)
	p.consumers, p.holders = map[string]*queue.Consumer{}, map[string]holder{}
	old.Browse(queue.Cursor{}, math.MaxInt, func(v queue.View) bool {
		if !v.Logged {
			p.say("%s is lost", p.name(v.Body))
			return true
		}
		r := v.Restored()
		r.Body, r.Size, r.TTL = v.Body, v.Size, -1
		p.m.Restore(v.ID, &r)
		return true
	})
	p.m.Restored(p.now)
	p.tick()
}

// show prints how many messages are in each state.
func (p *player) show() {
	n := p.m.Totals()
	var list []string
	for _, c := range []struct {
		n     int
		state string
	}{{n.Ready, "ready"}, {n.Out, "out"}, {n.Delayed, "delayed"}, {n.Held, "held"}} {
		if c.n > 0 {
			list = append(list, fmt.Sprint(c.n, " ", c.state))
		}
	}
	if list == nil {
		list = []string{"empty"}
	}
	p.say("%s", strings.Join(list, ", "))
}

func (p *player) name(body message.Ref) string { return p.names[body-1] }

func (p *player) nameOf(id queue.ID) string {
	v, _ := p.m.View(id)
	return p.name(v.Body)
}

// moment is a moment in the form of scripts: since the queue was made.
func (p *player) moment(at int64) string {
	return (time.Duration(at-start) * time.Millisecond).String()
}

func counts(n queue.Counts) string {
	switch {
	case n == queue.Counts{}:
		return ""
	case n.Deliveries == 0:
		return fmt.Sprintf(" (back %d)", n.Acquired)
	case n.Acquired == 0:
		return fmt.Sprintf(" (failed %d)", n.Deliveries)
	}
	return fmt.Sprintf(" (back %d, failed %d)", n.Acquired, n.Deliveries)
}

// given prints a delivery.
func (p *player) given(to string, c *queue.Consumer, d *queue.Delivery) {
	name, how := p.name(d.Body), ""
	if d.Redelivered {
		how = " again"
	}
	if d.NoAck {
		how += ", gone"
		delete(p.entries, name)
	} else {
		p.holders[name] = holder{c}
	}
	p.say("%s: %s%s%s", to, name, how, counts(d.Counts))
}

// Deliver implements queue.Sink, as do the following methods.
func (p *player) Deliver(c *queue.Consumer, d *queue.Delivery) bool {
	p.given(c.Tag, c, d)
	return true
}

func (p *player) Removed(_ queue.ID, body, _ message.Ref, _ bool) {
	name := p.name(body)
	delete(p.entries, name)
	if p.died != 0 {
		p.say("%s dies, %s, and goes nowhere", name, p.died)
		p.died = 0
		return
	}
	p.say("%s is gone", name)
}

func (p *player) Died(reason deadletter.Reason, routed bool) {
	if !routed {
		p.died = reason
	}
}

func (p *player) Ended(_ queue.ID, reason deadletter.Reason, _ bool) {
	p.say("a death goes with the queue: %s", reason)
}

func (p *player) Returned(id queue.ID, n queue.Counts, notBefore int64) {
	if notBefore != 0 {
		p.say("%s waits until %s%s", p.nameOf(id), p.moment(notBefore), counts(n))
		return
	}
	p.say("%s is back%s", p.nameOf(id), counts(n))
}

func (p *player) Broke(change queue.BreakerChange, b queue.Broken) {
	switch change {
	case queue.BreakerOpens:
		p.say("the breaker opens: %d of %d deliveries have died", b.Died, b.Ended)
	case queue.BreakerOpensAgain:
		p.say("the breaker opens again")
	default:
		p.say("the breaker closes")
	}
}

func (p *player) TookBack(*queue.Consumer, queue.ID) {}

func (p *player) Active(c *queue.Consumer, active bool, ready int) {
	if active {
		p.say("%s is the active one, of %d ready", c.Tag, ready)
	} else {
		p.say("%s is no longer the active one", c.Tag)
	}
}

func (p *player) TimedOut(c *queue.Consumer, n int) {
	p.say("%s has left %d unsettled for too long", c.Tag, n)
}

// arguments are the words of a command: plain ones, and key=value.
type arguments struct {
	words  []string
	flags  map[string]bool
	values map[string]string
}

// flagWords are the words without a value.
const flagWords = " classic quorum strict single-active dead-letter lost-and-found at-least-once no-ack exclusive metered transient requeue count-nack "

func parseArguments(words []string) arguments {
	a := arguments{flags: map[string]bool{}, values: map[string]string{}}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		switch {
		case ok:
			a.values[key] = value
		case strings.Contains(flagWords, " "+w+" "):
			a.flags[w] = true
		default:
			a.words = append(a.words, w)
		}
	}
	return a
}

func (a arguments) has(flag string) bool { return a.flags[flag] }

func (a arguments) int(key string, otherwise int) int {
	switch v, ok := a.values[key]; {
	case !ok:
		return otherwise
	case v == "none":
		return -1
	default:
		n, err := strconv.Atoi(v)
		if err != nil {
			panic(err)
		}
		return n
	}
}

func (a arguments) milliseconds(key string, otherwise int64) int64 {
	switch v, ok := a.values[key]; {
	case !ok:
		return otherwise
	case v == "none":
		return -1
	default:
		return a.duration(v)
	}
}

func (a arguments) duration(text string) int64 {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d.Milliseconds()
}
