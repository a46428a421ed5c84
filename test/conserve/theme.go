package conserve

import "fmt"

// A theme makes an episode of scenes: a few operations each, said one after the other, about
// the same few queues. So what the general mix brings together once in ten thousand episodes
// is near in every one of them. What a scene has of each, and when, is drawn all the same, and
// the ledger judges it by the same rules.
type theme struct {
	name     string
	features []string // of the general mix, whose operations come between the scenes
	topology func(*generator)
	scenes   []scene
}

type scene struct {
	weight int
	play   func(*generator)
}

// themed is the first seed of the general mix: those below have the theme that their last
// digit names.
const themed = 100_000

// themeOf says which theme a seed has; nil for the general mix.
func themeOf(seed uint64) *theme {
	if seed %= protocols; seed >= themed {
		return nil
	}
	return [10]*theme{
		deletions, deletions, deletions, limits, limits, stops, stops, stops, declarations, declarations,
	}[seed%10]
}

// deletions: what dies in a queue belongs to its target, also if the queue goes at once.
var deletions = &theme{
	name:     "dead letters and deletions",
	features: []string{"dead letters", "deletes", "rejects", "gets", "confirms"},
	topology: func(g *generator) {
		g.queues("source", 1+g.IntN(2), func(s *queueSpec) {
			s.dlx, s.dlrk = "", "target0"
			if g.has["divide"] {
				s.dlx, s.dlrk = "divide", ""
			}
			if g.chance(0.25) {
				s.ttl = []int{1, 20, 60, 200}[g.IntN(4)]
				if g.chance(0.5) {
					s.expires = s.ttl + 150
				}
			}
			if g.chance(0.1) {
				s.atLeastOnce, s.overflow = true, "reject-publish"
			}
		})
		g.targets(1 + g.IntN(2))
	},
	scenes: []scene{
		{6, (*generator).rejectAndDelete},
		{2, (*generator).expireAndDelete},
		{1, (*generator).mixed},
	},
}

// limits: what a queue refuses stays where it was, whoever carries it.
var limits = &theme{
	name:     "shovels and limits",
	features: []string{"max-length", "gets", "confirms", "shovels", "requeues"},
	topology: func(g *generator) {
		g.queues("source", 1+g.IntN(2), func(s *queueSpec) {
			if g.chance(0.2) {
				s.dlx, s.dlrk = "", "target0"
			}
		})
		g.queues("target", 1+g.IntN(2), func(s *queueSpec) {
			if g.chance(0.8) {
				g.limit(s)
			}
		})
	},
	scenes: []scene{
		{6, (*generator).shovelAndLimit},
		{2, (*generator).room},
		{1, (*generator).mixed},
	},
}

// stops: what must arrive at least once waits for every target, whatever comes between.
var stops = &theme{
	name:     "at least once and stops",
	features: []string{"dead letters", "divide", "at-least-once", "max-length", "rejects", "gets", "confirms"},
	topology: func(g *generator) {
		g.queues("source", 1+g.IntN(2), func(s *queueSpec) {
			s.dlx, s.overflow, s.atLeastOnce = "divide", "reject-publish", true
			if g.chance(0.2) {
				s.ttl = []int{1, 20, 60}[g.IntN(3)]
			}
		})
		g.targets(2 + g.IntN(2))
	},
	scenes: []scene{
		{6, (*generator).refuseAndStop},
		{2, (*generator).room},
		{1, (*generator).mixed},
	},
}

// declarations: what was told to be there, or gone, is so for whoever rests on it.
var declarations = &theme{
	name:     "declarations and kills",
	features: []string{"deletes", "confirms", "gets", "fanout"},
	topology: func(g *generator) {
		g.queues("source", 2+g.IntN(4), func(s *queueSpec) {
			if g.chance(0.2) {
				s.dlx, s.dlrk = "", "source0"
			}
		})
		g.fanouts["fan"] = g.several(2, 3)
	},
	scenes: []scene{
		{5, (*generator).declareTogether},
		{2, (*generator).bindAndPublish},
		{2, (*generator).deleteAndDeclare},
		{1, (*generator).mixed},
	},
}

// compose draws a themed episode.
func (g *generator) compose(t *theme) {
	for _, name := range t.features {
		g.has[name] = true
	}
	for _, name := range []string{"quorum", "classic"} {
		g.has[name] = g.chance(0.7)
	}
	g.has["divide"] = g.has["divide"] || g.chance(0.2) && !g.has["shovels"]
	t.topology(g)
	g.focus = g.slots[0].name
	g.clients = []plan{{confirming, plain}}
	for range 1 + g.IntN(2) {
		g.clients = append(g.clients, plan{confirming, []mode{plain, confirming, confirming, transactional}[g.IntN(4)]})
	}
	g.weigh()
	g.begin()
	for range 2 + g.IntN(6) {
		total := 0
		for _, s := range t.scenes {
			total += s.weight
		}
		n := g.IntN(total)
		for _, s := range t.scenes {
			if n -= s.weight; n < 0 {
				s.play(g)
				break
			}
		}
	}
}

// queues adds some of a name, each by chance classic or quorum.
func (g *generator) queues(name string, n int, fill func(*queueSpec)) {
	for i := range n {
		s := &queueSpec{durable: true, dlx: "none", ttl: -1, maxLen: -1, expires: -1, limit: -1}
		s.quorum = g.has["quorum"] && (!g.has["classic"] || g.chance(0.5))
		fill(s)
		s.fit(g)
		g.slots = append(g.slots, &slot{name: fmt.Sprintf("%s%d", name, i), variants: []*queueSpec{s}})
	}
}

// targets adds queues that dead letters go to, bound to divide if there is need of it.
func (g *generator) targets(n int) {
	g.queues("target", n, func(s *queueSpec) {
		if g.has["max-length"] && g.chance(0.6) {
			g.limit(s)
		}
	})
	if !g.has["divide"] {
		return
	}
	for i := range n {
		g.fanouts["divide"] = append(g.fanouts["divide"], fmt.Sprintf("target%d", i))
	}
	g.divides = n > 1
}

func (g *generator) limit(s *queueSpec) {
	s.maxLen = []int{0, 1, 1, 2, 2, 3, 5, 10}[g.IntN(8)]
	s.overflow = g.pick("", "reject-publish", "reject-publish", "reject-publish", "reject-publish-dlx")
}

// named draws a queue of a name.
func (g *generator) named(name string) string {
	var all []string
	for _, s := range g.slots {
		if s.name[:len(name)] == name {
			all = append(all, s.name)
		}
	}
	return all[g.IntN(len(all))]
}

// speaker draws a client and its channel, which is in confirm mode most of the time.
func (g *generator) speaker() op {
	o := op{client: g.IntN(len(g.clients)), expiration: -1}
	if g.chance(0.2) {
		o.channel = g.IntN(len(g.clients[o.client]))
	}
	return o
}

// said adds an operation of the speaker about a queue.
func (g *generator) said(by op, v verb, queue string, fill func(*op)) {
	by.verb, by.queue = v, queue
	if fill != nil {
		fill(&by)
	}
	g.add(by)
}

func held(o *op) { o.hold = true }

// answered has all, or only the speaker, wait for what is to be answered.
func (g *generator) answered(by op) {
	if g.chance(0.7) {
		g.said(by, doAwait, "", nil)
	} else {
		g.add(op{verb: doWait})
	}
}

// fill has a queue be there and gives it some messages.
func (g *generator) fill(by op, queue string, most int) (n int) {
	g.said(by, doDeclare, queue, held)
	n = 1 + g.IntN(most)
	g.publishTo(by, queue, n)
	g.answered(by)
	return n
}

func (g *generator) publishTo(by op, queue string, n int) {
	g.said(by, doPublish, queue, func(o *op) {
		o.key, o.count, o.size = queue, n, []int{0, 10, 100, 5000}[g.IntN(4)]
		o.persistent = g.chance(0.95)
	})
	if g.clients[by.client][by.channel] == transactional {
		g.said(by, doCommit, "", nil)
	}
}

// take has the speaker hold some messages of a queue.
func (g *generator) take(by op, queue string, n int) {
	if g.chance(0.3) {
		g.said(by, doConsume, queue, nil)
		g.said(by, doAwait, "", nil)
		g.add(op{verb: doPause, pause: []int{1000, 4000}[g.IntN(2)]})
		return
	}
	g.said(by, doGet, queue, func(o *op) { o.count = n })
	g.said(by, doAwait, "", nil)
}

// settleSome settles what the speaker holds, or some of it, in one write with what follows.
func (g *generator) settleSome(by op, how settlement) {
	for range 1 + g.IntN(2) {
		g.said(by, doSettle, "", func(o *op) {
			o.how, o.hold, o.multiple, o.pick = how, g.chance(0.85), g.chance(0.7), g.IntN(8)
		})
	}
	if g.clients[by.client][by.channel] == transactional {
		g.said(by, doCommit, "", held)
	}
}

// end ends the node, if episodes may, most likely at once.
func (g *generator) end(p float64) {
	if !g.o.kills || !g.chance(p) {
		return
	}
	if g.chance(0.25) {
		g.add(op{verb: doPause, pause: []int{50, 300, 2000, 60000}[g.IntN(4)]})
	}
	o := op{verb: doKill, pause: g.down()}
	if g.chance(0.3) {
		o.verb = doStop
	}
	g.add(o)
}

func (g *generator) rejectAndDelete() {
	by, queue := g.speaker(), g.named("source")
	n := g.fill(by, queue, 12)
	g.take(by, queue, n)
	g.settleSome(by, rejected)
	if g.chance(0.1) {
		g.publishTo(by, queue, 1+g.IntN(3))
	}
	g.said(by, doDelete, queue, nil)
	g.after(by, queue)
}

func (g *generator) expireAndDelete() {
	by, queue := g.speaker(), g.named("source")
	g.fill(by, queue, 12)
	ttl := g.slot(queue).variants[0].ttl
	if ttl >= 0 && g.chance(0.7) {
		g.add(op{verb: doPause, pause: 1000 * max(0, ttl-2+g.IntN(4))})
	}
	if g.chance(0.5) {
		g.said(by, doDelete, queue, nil)
		g.after(by, queue)
		return
	}
	g.end(1)
}

// after is what comes behind the deletion of a queue.
func (g *generator) after(by op, queue string) {
	switch g.IntN(4) {
	case 0:
		g.said(by, doDeclare, queue, nil)
		g.answered(by)
	case 1:
	default:
		g.answered(by)
	}
	g.end(0.6)
}

func (g *generator) shovelAndLimit() {
	by := g.speaker()
	from, to := g.named("source"), g.named("target")
	if g.chance(0.15) {
		from, to = to, from
	}
	g.fill(by, from, 20)
	if g.chance(0.3) {
		g.publishTo(by, to, 1+g.IntN(10))
	}
	carry := op{verb: doShovel, queue: from, to: to, pick: g.IntN(20), expiration: -1}
	g.add(carry)
	g.add(op{verb: doPause, pause: []int{500, 3000, 10000}[g.IntN(3)]})
	g.end(0.3)
	if g.chance(0.6) {
		g.add(carry) // ends it
	}
}

// room takes from a queue what it has, or some of it.
func (g *generator) room() {
	by, queue := g.speaker(), g.named("target")
	g.take(by, queue, 1+g.IntN(6))
	how := acked
	if g.chance(0.2) {
		how = []settlement{rejected, requeued, failed}[g.IntN(3)]
	}
	g.settleSome(by, how)
	g.answered(by)
}

func (g *generator) refuseAndStop() {
	by, queue := g.speaker(), g.named("source")
	if g.chance(0.4) {
		g.publishTo(by, g.named("target"), 1+g.IntN(4))
	}
	n := g.fill(by, queue, 6)
	g.take(by, queue, n)
	g.settleSome(by, rejected)
	if g.chance(0.5) {
		g.answered(by)
	} else {
		g.said(by, doPause, "", func(o *op) { o.pause = []int{0, 300, 3000}[g.IntN(3)] })
	}
	g.end(0.8)
}

// declareTogether has several clients need the same queue at the same time.
func (g *generator) declareTogether() {
	queue := g.named("source")
	if g.chance(0.7) {
		by := g.speaker()
		g.said(by, doDelete, queue, nil)
		g.answered(by)
	}
	var by op
	for i := range g.clients {
		by = g.speaker()
		by.client = i
		by.channel = 0
		g.said(by, doDeclare, queue, func(o *op) { o.hold = g.chance(0.6) })
		if g.chance(0.8) {
			g.publishTo(by, queue, 1+g.IntN(3))
		}
	}
	by.client = g.IntN(len(g.clients))
	g.said(by, doAwait, "", nil)
	g.end(0.8)
}

func (g *generator) bindAndPublish() {
	by, queue := g.speaker(), g.fanouts["fan"][g.IntN(len(g.fanouts["fan"]))]
	g.said(by, doDeclare, queue, held)
	g.said(by, doBind, queue, func(o *op) { o.exchange, o.hold = "fan", g.chance(0.7) })
	g.said(by, doPublish, queue, func(o *op) { o.exchange, o.key, o.count, o.persistent = "fan", queue, 1+g.IntN(4), true })
	g.answered(by)
	g.end(0.6)
}

func (g *generator) deleteAndDeclare() {
	by, queue := g.speaker(), g.named("source")
	for range 1 + g.IntN(3) {
		g.said(by, doDelete, queue, func(o *op) { o.hold = g.chance(0.7) })
		g.said(by, doDeclare, queue, func(o *op) { o.hold = g.chance(0.7) })
	}
	if g.chance(0.7) {
		g.publishTo(by, queue, 1+g.IntN(4))
	}
	g.answered(by)
	g.end(0.7)
}

// mixed are a few operations of the general mix.
func (g *generator) mixed() {
	for range 1 + g.IntN(5) {
		g.drawOne()
	}
	if g.chance(0.5) {
		g.add(op{verb: doWait})
	}
}
