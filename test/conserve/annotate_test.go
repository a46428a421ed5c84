package conserve

import (
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/test/client10"
)

// annotatedStory is a story about a quorum queue a and one message that is in it.
type annotatedStory struct {
	*story
	m *message
}

func newAnnotatedStory(t *testing.T) annotatedStory {
	s := newStory(t)
	s.w.slots[0].variants[0].quorum = true
	return annotatedStory{s, s.publish("m")}
}

// modifies has a new client get the message from a and settle it with annotations, as the operation says.
func (s annotatedStory) modifies(op int, how settlement, redelivered bool, carries ...*annotation) *delivery {
	d := s.comes("a", redelivered, carries...)
	a := d.ch.act("settle modified", "")
	a.annotates = &annotation{op}
	s.l.settlingThose(d.ch, a, how, func(other *delivery) bool { return other == d })
	return d
}

// done has the settlement be answered.
func (s annotatedStory) done(d *delivery) {
	d.settle.done = s.l.tick()
}

// comes has a new client get the message from a queue with annotations.
func (s annotatedStory) comes(queue string, redelivered bool, carries ...*annotation) *delivery {
	var deaths []string
	if queue == "b" {
		deaths = []string{"a"}
	}
	d := s.deliver(s.consumer(queue), "m", queue, body, redelivered, deaths...)
	for _, n := range carries {
		if d.carries == nil {
			d.carries = map[string]string{}
		}
		d.carries[n.key()], d.carries[annotationLatest] = n.value(), n.value()
	}
	return d
}

// The ledger notices annotations that get lost, that nobody gave, and that are older than they may be, and complains of no others.
func TestLedgerHoldsAnnotations(t *testing.T) {
	first, second := &annotation{2}, &annotation{3}
	for name, c := range map[string]struct {
		tell func(s annotatedStory)
		want string
	}{
		"the next delivery has them": {func(s annotatedStory) {
			s.done(s.modifies(2, requeued, false))
			s.comes("a", true, first)
		}, ""},
		"the next delivery lacks them": {func(s annotatedStory) {
			s.done(s.modifies(2, requeued, false))
			s.comes("a", true)
		}, "the annotation x-opt-said-2 is nothing, want operation 2"},
		"they have another value": {func(s annotatedStory) {
			s.done(s.modifies(2, requeued, false))
			s.comes("a", true, first).carries[first.key()] = "changed"
		}, "is changed, want operation 2"},
		"the outcome may not have arrived": {func(s annotatedStory) {
			d := s.modifies(2, requeued, false)
			s.l.channelEnded(d.ch)
			s.comes("a", true)
		}, ""},
		"the dead letter has them": {func(s annotatedStory) {
			s.done(s.modifies(2, rejected, false))
			s.comes("b", true, first)
		}, ""},
		"the dead letter lacks them": {func(s annotatedStory) {
			s.done(s.modifies(2, rejected, false))
			s.comes("b", true)
		}, "m in b [a/rejected*1]: the annotation x-opt-said-2 is nothing"},
		"a death loses those of before": {func(s annotatedStory) {
			s.done(s.modifies(2, requeued, false))
			s.done(s.modifies(3, rejected, true, first))
			s.comes("b", true, second)
		}, "m in b [a/rejected*1]: the annotation x-opt-said-2 is nothing"},
		"what was seen once stays": {func(s annotatedStory) {
			d := s.modifies(2, requeued, false) // nobody knows whether this came
			s.l.channelEnded(d.ch)
			s.l.channelEnded(s.comes("a", true, first).ch)
			s.comes("a", true)
		}, "it came with that before"},
		"the latest stays": {func(s annotatedStory) {
			s.done(s.modifies(2, requeued, false))
			s.done(s.modifies(3, requeued, true, first))
			s.comes("a", true, first, second)
		}, ""},
		"an older one stays": {func(s annotatedStory) {
			s.done(s.modifies(2, requeued, false))
			s.done(s.modifies(3, requeued, true, first))
			s.comes("a", true, second, first)
		}, `the annotation x-opt-latest is "operation 2", and settle modified came later`},
		"nobody gave them": {func(s annotatedStory) {
			s.comes("a", false, first)
		}, "nobody has given it the annotation x-opt-said-2=operation 2"},
		"a classic queue takes them": {func(s annotatedStory) {
			s.w.slots[0].variants[0].quorum = false
			s.done(s.modifies(2, requeued, false))
			s.comes("a", true, first)
		}, "nobody has given it the annotation"},
		"a classic queue takes none": {func(s annotatedStory) {
			s.w.slots[0].variants[0].quorum = false
			s.done(s.modifies(2, requeued, false))
			s.comes("a", true)
		}, ""},
		"a kill may lose what no confirm has followed": {func(s annotatedStory) {
			s.done(s.modifies(2, requeued, false))
			s.kill()
			s.comes("a", true)
		}, ""},
		"a kill loses what a confirm has followed": {func(s annotatedStory) {
			d := s.modifies(2, requeued, false)
			s.done(d)
			d.synced = s.l.tick()
			s.kill()
			s.comes("a", true)
		}, "the annotation x-opt-said-2 is nothing"},
		"a kill loses what was seen": {func(s annotatedStory) {
			s.done(s.modifies(2, requeued, false))
			s.comes("a", true, first)
			s.kill()
			s.comes("a", true)
		}, "it came with that before"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAnnotatedStory(t)
			c.tell(s)
			for _, client := range s.l.clients { // what they still hold is nobody's matter here
				s.l.connectionEnded(client)
			}
			s.l.faults = nil
			(&judge{l: s.l, w: s.w}).annotated(s.m)
			complains := func(f string) bool { return strings.Contains(f, c.want) }
			if c.want == "" && len(s.l.faults) > 0 || c.want != "" && !slices.ContainsFunc(s.l.faults, complains) {
				t.Errorf("complaints: %q, want %q", s.l.faults, c.want)
			}
		})
	}
}

// What a client says in an outcome is what the ledger reads in a delivery, in both protocols and for each type of value.
func TestLedgerReadsAnnotations(t *testing.T) {
	for op := range 4 {
		n := &annotation{op}
		want, isNumber := n.value(), op < 2
		m := n.section()
		for _, key := range []string{n.key(), annotationLatest} {
			v, ok := m.Lookup(key)
			text, isText := v.Text()
			symbol, isSymbol := v.Symbol()
			if number, is := v.Int64(); is && isNumber && number == int64(op) || (isText || isSymbol) && !isNumber && string(text)+string(symbol) == want {
				continue
			}
			t.Errorf("operation %d says %v for %s (%v)", op, v, key, ok)
		}
		var header any = want
		if isNumber {
			header = int64(op)
		}
		ten := carried(contentOf(&client10.Received{Annotations: map[string]any{n.key(): header}}))
		old := carried(&content{props: amqp091.PropertyList{Headers: amqp091.Table{{Key: n.key(), Value: header}}}})
		if ten[n.key()] != want || old[n.key()] != want {
			t.Errorf("operation %d: %v and %v, want %q", op, ten, old, want)
		}
	}
}
