package conserve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"bartleby.mq/internal/wire/amqp091"
)

// world is what an episode is played in, and what is done there: all of it follows from the
// seed. Operations refer to clients, channels and queues by number and name, so that any of
// them can be left out.
type world struct {
	seed    uint64
	slots   []*slot
	fanouts map[string][]string // exchange to the queues bound to it
	divides bool                // a dead letter exchange has several targets
	clients []plan
	tens    []bool // which clients speak AMQP 1.0
	ops     []op
}

// slot is a name of a queue, with all that is ever declared under it.
type slot struct {
	name     string
	variants []*queueSpec
}

// plan says which channels a client has.
type plan []mode

// queueSpec is a queue's declaration, or what a policy makes of a queue.
type queueSpec struct {
	quorum, durable       bool
	exclusive, autoDelete bool
	single                bool   // single active consumer
	dlx, dlrk             string // dlx is "none" if there is none
	atLeastOnce           bool
	ttl, maxLen, expires  int    // -1: none
	overflow              string // "": not said
	limit                 int    // delivery limit, -1: not said
	retry                 int    // delayed retry's least delay, 0: none
	maxPriority           int    // 0: none
	policy                bool   // said by a policy, beside the queue's own arguments
}

func (s *queueSpec) table() (t amqp091.Table) {
	add := func(key string, v any) { t = append(t, amqp091.Field{Key: key, Value: v}) }
	number := func(key string, n int) {
		if n >= 0 {
			add(key, int32(n))
		}
	}
	if s.quorum {
		add("x-queue-type", "quorum")
	}
	if s.dlx != "none" {
		add("x-dead-letter-exchange", s.dlx)
		if s.dlrk != "" {
			add("x-dead-letter-routing-key", s.dlrk)
		}
	}
	if s.atLeastOnce {
		add("x-dead-letter-strategy", "at-least-once")
	}
	number("x-message-ttl", s.ttl)
	number("x-max-length", s.maxLen)
	number("x-expires", s.expires)
	if s.overflow != "" {
		add("x-overflow", s.overflow)
	}
	number("x-delivery-limit", s.limit)
	if s.retry > 0 {
		add("x-delayed-retry-type", "all")
		number("x-delayed-retry-min", s.retry)
	}
	if s.maxPriority > 0 {
		number("x-max-priority", s.maxPriority)
	}
	if s.single {
		add("x-single-active-consumer", true)
	}
	return t
}

// refuses says whether the queue takes nothing more when it is full.
func (s *queueSpec) refuses() bool {
	return s.overflow == "reject-publish" || s.overflow == "reject-publish-dlx"
}

func (s *queueSpec) String() string {
	var b strings.Builder
	b.WriteString(map[bool]string{true: "quorum", false: "classic"}[s.quorum])
	for word, is := range map[string]bool{" transient": !s.durable, " exclusive": s.exclusive, " auto-delete": s.autoDelete} {
		if is {
			b.WriteString(word)
		}
	}
	for _, f := range s.table() {
		if f.Key != "x-queue-type" {
			fmt.Fprintf(&b, " %s=%v", strings.TrimPrefix(f.Key, "x-"), f.Value)
		}
	}
	return b.String()
}

type verb uint8

const (
	doPublish verb = iota
	doDeclare
	doBind
	doDelete
	doPurge
	doConsume
	doCancel
	doGet
	doSettle
	doRecover
	doCommit
	doRollback
	doCloseChannel
	doClose
	doAbort
	doWait
	doPause
	doReply
	doPolicy
	doShovel
	doReplay
	doStop
	doKill
	doAwait
	doCredit
	verbs
)

var verbNames = [verbs]string{
	"publish", "declare", "bind", "delete", "purge", "consume", "cancel", "get", "settle", "recover", "commit", "rollback",
	"close channel", "close", "abort", "wait", "pause", "reply", "policy", "shovel", "replay", "stop", "kill", "await", "credit",
}

// op is one thing that a client, or whoever runs the broker, does.
type op struct {
	index      int // in the episode, also when others are left out
	verb       verb
	client     int
	channel    int
	queue      string
	to         string // second queue
	variant    int
	exchange   string
	key        string
	count      int
	size       int
	expiration int
	priority   int
	persistent bool
	mandatory  bool
	noAck      bool
	multiple   bool
	how        settlement
	prefetch   int
	pick       int  // which delivery is settled
	hold       bool // is not sent before the client's next operation
	cut        int  // where the write is cut in two, if not 0
	pause      int  // microseconds
}

func (o *op) String() string {
	s := fmt.Sprintf("%3d %s", o.index, verbNames[o.verb])
	switch o.verb {
	case doPublish:
		s += fmt.Sprintf(" %dx %q/%s", o.count, o.exchange, o.key)
		for word, is := range map[string]bool{" persistent": o.persistent, " mandatory": o.mandatory} {
			if is {
				s += word
			}
		}
		if o.expiration >= 0 {
			s += fmt.Sprintf(" expiration %d", o.expiration)
		}
	case doSettle:
		s += " " + [...]string{"", "ack", "reject", "nack requeue", "reject requeue", ""}[o.how]
		if o.multiple {
			s += " multiple"
		}
	case doPause:
		return s + fmt.Sprintf(" %d us", o.pause)
	case doConsume:
		s += fmt.Sprintf(" prefetch %d", o.prefetch)
	case doCredit:
		s += fmt.Sprintf(" %d", o.prefetch)
		if o.multiple {
			s += " drain"
		}
	case doAwait:
		return s + fmt.Sprintf(" client %d", o.client)
	case doWait, doStop, doKill:
		return s
	}
	if o.queue != "" {
		s += " " + o.queue
	}
	if o.to != "" {
		s += " to " + o.to
	}
	if o.noAck {
		s += " no-ack"
	}
	s += fmt.Sprintf(" on %d/%d", o.client, o.channel)
	if o.hold {
		s += " +"
	}
	return s
}

// describe shows the world and the operations.
func (w *world) describe(ops []op) string {
	var b strings.Builder
	if t := themeOf(w.seed); t != nil {
		fmt.Fprintf(&b, "\ttheme: %s\n", t.name)
	}
	for _, s := range w.slots {
		for i, v := range s.variants {
			fmt.Fprintf(&b, "\t%s variant %d: %v\n", s.name, i, v)
		}
	}
	for _, x := range sortedKeys(w.fanouts) {
		fmt.Fprintf(&b, "\texchange %s to %v\n", x, w.fanouts[x])
	}
	for i, p := range w.clients {
		speaks := ""
		if w.speaksTen(i) {
			speaks = " of AMQP 1.0"
		}
		fmt.Fprintf(&b, "\tclient %d%s: channels %v\n", i, speaks, []mode(p))
	}
	for i := range ops {
		fmt.Fprintf(&b, "\t%v\n", &ops[i])
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (w *world) slot(name string) *slot {
	for _, s := range w.slots {
		if s.name == name {
			return s
		}
	}
	return nil
}

func (w *world) quorum(queue string) bool {
	s := w.slot(queue)
	return s != nil && s.variants[0].quorum
}

func (w *world) durable(queue string) bool {
	s := w.slot(queue)
	return s != nil && !slices.ContainsFunc(s.variants, func(v *queueSpec) bool { return !v.durable || v.exclusive })
}

// possibleRoutes lists the queues that an exchange may route a key to.
func (w *world) possibleRoutes(exchange, key string) []string {
	if exchange != "" {
		return w.fanouts[exchange]
	}
	if w.slot(key) == nil {
		return nil
	}
	return []string{key}
}

// options limit what an episode may hold.
type options struct {
	kills       bool     // the node may be killed and stopped
	peer        bool     // RabbitMQ
	atLeastOnce bool     // classic queues have it
	without     []string // features that no episode has
}

// generator draws an episode. Each has a part of all features only, so that those which it
// has meet more often, and so that the ledger has less to forgive in many of them.
type generator struct {
	*rand.Rand
	*world
	o options

	has     map[string]bool
	weights [verbs]int
	hold    float64
	focus   string // the queue that most is about
	near    op     // the latest operation, which the next one is likely to meet
}

func (g *generator) chance(p float64) bool { return g.Float64() < p }

func (g *generator) pick(words ...string) string { return words[g.IntN(len(words))] }

// features may each be in an episode or not.
var features = map[string]float64{
	"quorum": 0.5, "classic": 0.7, "ttl": 0.25, "max-length": 0.3, "dead letters": 0.65, "divide": 0.2, "transactions": 0.35, "confirms": 0.7,
	"transient": 0.15, "exclusive": 0.08, "auto-delete": 0.1, "expires": 0.08, "single": 0.3, "limit": 0.3, "retry": 0.12, "priorities": 0.2,
	"at-least-once": 0.25, "expiration": 0.15, "mandatory": 0.4, "unroutable": 0.3, "fanout": 0.4, "replies": 0.15, "deletes": 0.35, "purges": 0.2,
	"no-ack": 0.25, "gets": 0.4, "requeues": 0.4, "rejects": 0.6, "aborts": 0.5, "closes": 0.3, "variants": 0.15, "policies": 0.2, "shovels": 0.12,
	"replays": 0.12, "stops": 0.3,
}

// generate makes the episode of a seed.
func generate(seed uint64, o options) *world {
	if bilingual(seed) {
		w := generate(seed-protocols, o)
		w.seed = seed
		if seed >= annotating {
			w.annotate(o.kills)
		} else {
			w.mixProtocols()
		}
		return w
	}
	g := &generator{
		Rand: rand.New(rand.NewPCG(seed, 0xc0)), o: o, has: map[string]bool{},
		world: &world{seed: seed, fanouts: map[string][]string{}},
	}
	if t := themeOf(seed); t != nil {
		g.compose(t)
		return g.world
	}
	for _, name := range sortedKeys(features) {
		g.has[name] = g.chance(features[name]) && !slices.Contains(o.without, name)
	}
	g.topology()
	g.operations()
	return g.world
}

func (g *generator) topology() {
	n := 1 + g.IntN(4)
	for i := range n {
		g.slots = append(g.slots, &slot{name: fmt.Sprintf("q%d", i)})
	}
	if g.has["fanout"] {
		g.fanouts["fan"] = g.several(2, 3)
	}
	if g.has["divide"] {
		g.fanouts["divide"] = g.several(2, 3)
		g.divides = len(g.fanouts["divide"]) > 1
	}
	for _, s := range g.slots {
		s.variants = []*queueSpec{g.queue(s.name)}
		if g.has["variants"] && g.chance(0.5) {
			v := g.queue(s.name)
			v.quorum = s.variants[0].quorum
			v.fit(g)
			s.variants = append(s.variants, v)
		}
	}
	g.focus = g.slots[0].name
	for range 1 + g.IntN(4) {
		var p plan
		for range 1 + g.IntN(3) {
			m := plain
			switch {
			case g.has["confirms"] && g.chance(0.6):
				m = confirming
			case g.has["transactions"] && g.chance(0.6):
				m = transactional
			}
			p = append(p, m)
		}
		g.clients = append(g.clients, p)
	}
}

// several draws names of queues.
func (g *generator) several(least, most int) (names []string) {
	n := min(len(g.slots), least+g.IntN(most-least+1))
	for _, i := range g.Perm(len(g.slots))[:n] {
		names = append(names, g.slots[i].name)
	}
	slices.Sort(names)
	return names
}

func (g *generator) queue(name string) *queueSpec {
	s := &queueSpec{durable: true, dlx: "none", ttl: -1, maxLen: -1, expires: -1, limit: -1}
	s.quorum = g.has["quorum"] && (!g.has["classic"] || g.chance(0.5))
	s.durable = !g.has["transient"] || !g.chance(0.5)
	s.exclusive = g.has["exclusive"] && g.chance(0.5)
	s.autoDelete = g.has["auto-delete"] && g.chance(0.5)
	s.single = g.has["single"] && g.chance(0.6)
	if g.has["dead letters"] && g.chance(0.7) {
		s.dlx, s.dlrk = "", g.slots[g.IntN(len(g.slots))].name
		if s.dlrk == name && g.chance(0.7) {
			s.dlrk = g.slots[len(g.slots)-1].name
		}
		switch {
		case g.has["divide"] && g.chance(0.5):
			s.dlx, s.dlrk = "divide", ""
		case g.chance(0.05):
			s.dlrk = ""
		case g.chance(0.05):
			s.dlrk = "nowhere"
		}
	}
	if g.has["ttl"] && g.chance(0.5) {
		s.ttl = []int{0, 1, 10, 50, 200}[g.IntN(5)]
	}
	if g.has["max-length"] && g.chance(0.6) {
		s.maxLen = []int{0, 1, 2, 5, 10}[g.IntN(5)]
		s.overflow = g.pick("", "drop-head", "reject-publish", "reject-publish", "reject-publish-dlx")
	}
	if g.has["expires"] && g.chance(0.5) {
		s.expires = []int{50, 150, 400, 60000}[g.IntN(4)]
	}
	if g.has["limit"] && g.chance(0.7) {
		s.limit = g.IntN(4)
	}
	if g.has["retry"] && g.chance(0.5) {
		s.retry = []int{1, 30, 100}[g.IntN(3)]
	}
	if g.has["priorities"] && g.chance(0.5) {
		s.maxPriority = []int{1, 5, 10}[g.IntN(3)]
	}
	if g.has["at-least-once"] && s.dlx != "none" && g.chance(0.7) {
		s.atLeastOnce = true
		s.overflow = "reject-publish"
	}
	s.fit(g)
	return s
}

// fit takes away what the queue's type does not know.
func (s *queueSpec) fit(g *generator) {
	if s.quorum {
		s.durable, s.exclusive, s.autoDelete, s.maxPriority = true, false, false, 0
		return
	}
	s.limit, s.retry = -1, 0
	if s.atLeastOnce && !g.o.atLeastOnce {
		s.atLeastOnce = false
	}
	if s.exclusive {
		s.durable = false
	}
}

func (g *generator) operations() {
	g.weigh()
	g.begin()
	for range []int{8, 20, 40, 70}[g.IntN(4)] {
		g.drawOne()
	}
}

// weigh sets how often each operation is drawn.
func (g *generator) weigh() {
	base := map[verb]int{
		doPublish: 30, doConsume: 10, doSettle: 20, doWait: 6, doPause: 4, doDeclare: 2, doCancel: 1, doCloseChannel: 1,
	}
	for v, n := range base {
		g.weights[v] = n
	}
	for name, extra := range map[string]map[verb]int{
		"gets": {doGet: 10}, "deletes": {doDelete: 5, doDeclare: 4}, "purges": {doPurge: 3}, "transactions": {doCommit: 8, doRollback: 2},
		"requeues": {doRecover: 1}, "aborts": {doAbort: 4}, "closes": {doClose: 3, doCloseChannel: 4}, "replies": {doReply: 6},
		"policies": {doPolicy: 4}, "shovels": {doShovel: 4}, "replays": {doReplay: 4}, "fanout": {doBind: 1}, "divide": {doBind: 1},
	} {
		if name == "shovels" && g.has["divide"] {
			continue // round a shovel, what dies into several queues would become more without end
		}
		if g.has[name] {
			for v, n := range extra {
				g.weights[v] += n
			}
		}
	}
	if g.o.kills {
		g.weights[doKill] = 2
		if g.has["stops"] {
			g.weights[doStop] = 2
		}
	}
	g.hold = []float64{0, 0.3, 0.7, 0.9}[g.IntN(4)]
}

// begin has the queues declared.
func (g *generator) begin() {
	// All queues are there at first, most of the time.
	for _, s := range g.slots {
		if g.chance(0.95) {
			g.add(op{verb: doDeclare, queue: s.name, hold: g.chance(0.3)})
		}
	}
	for _, x := range sortedKeys(g.fanouts) {
		for _, q := range g.fanouts[x] {
			g.add(op{verb: doBind, queue: q, exchange: x})
		}
	}
	g.add(op{verb: doWait})
}

// drawOne adds an operation.
func (g *generator) drawOne() {
	total := 0
	for _, n := range g.weights {
		total += n
	}
	n := g.IntN(total)
	for v, weight := range g.weights {
		if n -= weight; n < 0 {
			g.draw(verb(v))
			break
		}
	}
}

func (g *generator) add(o op) {
	o.index = len(g.ops)
	g.ops = append(g.ops, o)
	g.near = o
}

func (g *generator) someQueue() string {
	if g.chance(0.5) {
		return g.focus
	}
	return g.slots[g.IntN(len(g.slots))].name
}

// draw adds an operation. Half of them stay with the client and the queue of the one before.
func (g *generator) draw(v verb) {
	o := op{verb: v, client: g.IntN(len(g.clients)), queue: g.someQueue(), expiration: -1, hold: g.chance(g.hold), pick: g.IntN(8)}
	o.channel = g.IntN(len(g.clients[o.client]))
	if g.near.verb <= doRollback && g.chance(0.5) {
		o.client, o.channel = g.near.client, g.near.channel
		if g.near.queue != "" && g.chance(0.7) {
			o.queue = g.near.queue
		}
	}
	if g.chance(0.1) {
		o.cut = 1 + g.IntN(1<<14)
	}
	switch v {
	case doPublish:
		g.drawPublish(&o)
	case doDeclare:
		o.variant = g.IntN(len(g.slot(o.queue).variants))
	case doBind:
		names := sortedKeys(g.fanouts)
		o.exchange = names[g.IntN(len(names))]
		o.queue = g.fanouts[o.exchange][g.IntN(len(g.fanouts[o.exchange]))]
	case doConsume:
		o.noAck = g.has["no-ack"] && g.chance(0.25)
		o.prefetch = []int{0, 1, 2, 3, 10}[g.IntN(5)]
	case doGet:
		o.noAck = g.has["no-ack"] && g.chance(0.25)
		o.count = 1 + g.IntN(3)
	case doSettle:
		kinds := []settlement{acked, acked}
		if g.has["rejects"] {
			kinds = append(kinds, rejected, rejected, rejected)
		}
		if g.has["requeues"] {
			kinds = append(kinds, requeued, failed)
		}
		o.how = kinds[g.IntN(len(kinds))]
		o.multiple = g.chance(0.4)
	case doPause:
		o.pause = []int{100, 1000, 5000, 30000}[g.IntN(4)]
	case doShovel, doReplay:
		o.to = g.slots[g.IntN(len(g.slots))].name
	case doPolicy:
		o.variant = g.IntN(1 << 16)
	case doKill, doStop:
		o.pause = g.down()
	}
	g.add(o)
	g.follow(&o)
}

// follow adds what is soon done after some operations: pairs that look at the same thing
// from two sides.
func (g *generator) follow(o *op) {
	switch {
	case o.verb == doSettle && o.how == rejected && g.weights[doDelete] > 0 && g.chance(0.3):
		// Of the queue, whichever it is, that the delivery came from.
		g.add(op{verb: doDelete, client: o.client, channel: o.channel, hold: g.chance(0.3), expiration: -1})
	case o.verb == doConsume && g.chance(0.5):
		g.add(op{verb: doPause, pause: 2000})
	}
	soon := 0.08
	if g.near.verb == doDelete {
		soon = 0.3
	}
	if g.o.kills && (g.near.verb == doDelete || g.near.verb == doDeclare || g.near.verb == doPublish || g.near.verb == doSettle || g.near.verb == doCommit) && g.chance(soon) {
		if g.chance(0.7) {
			g.add(op{verb: doWait})
		}
		g.add(op{verb: doKill, pause: g.down()})
	}
}

// down is for how long the node is down, in microseconds.
func (g *generator) down() int { return []int{0, 0, 0, 60000, 450000}[g.IntN(5)] }

func (g *generator) drawPublish(o *op) {
	o.key = o.queue
	o.count = 1 + g.IntN(5)
	o.persistent = !g.has["transient"] || g.chance(0.7)
	o.size = []int{0, 1, 10, 100, 5000, 20000}[g.IntN(6)]
	o.mandatory = g.has["mandatory"] && g.chance(0.4)
	if g.has["fanout"] && g.chance(0.3) {
		o.exchange = "fan"
	}
	if g.has["unroutable"] && g.chance(0.25) {
		o.exchange, o.key = "", "nowhere"
	}
	if g.has["expiration"] && g.chance(0.4) {
		o.expiration = []int{0, 1, 20, 100}[g.IntN(4)]
	}
	if g.has["priorities"] {
		o.priority = g.IntN(12)
	}
}
