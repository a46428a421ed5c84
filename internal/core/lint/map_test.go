package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/lint"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
)

func (w *world) drawn() lint.Map {
	v, _ := w.VHost("v")
	p := lint.New(v)
	p.Order()
	for p.Step(v, func() bool { return true }, nil) {
	}
	p.Bindings(v)
	return p.Map()
}

// The map has each way of dead letters once, where it comes from, whether letters come round by it, and what is wrong with it.
func TestMapOfDeadLetters(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.exchange("dlx", routing.Direct)
	w.exchange("more", routing.Fanout)
	w.exchange("apart", routing.Fanout)
	w.queue("work", "dlx=dlx", "dlk=retry")
	w.queue("retry", "dlx=", "dlk=work", "message-ttl=5")
	w.queue("side")
	w.queue("audit")
	w.queue("idle")
	w.bind("dlx", "retry", "retry")
	w.bind("dlx", "side", "other")
	w.bind("more", "audit", "")
	w.bind("apart", "idle", "")
	if _, _, err := w.Bind(topology.BindingDecl{VHost: "v", Source: "dlx", DestinationKind: topology.ExchangeResource, Destination: "more", Key: "retry"}, nil); err != nil {
		t.Fatal(err)
	}
	w.policy("dead", "^(lost|blind)$", false, topology.Definition{"dead-letter-exchange": "gone"})
	w.queue("lost")
	w.queue("nowhere", "dlx=", "dlk=nobody")
	w.queue("keeps", "dlx=dlx")
	var got []string
	m := w.drawn()
	for _, e := range m.Edges {
		key := "-"
		if e.Key != nil {
			key = *e.Key
		}
		got = append(got, fmt.Sprintf("%s %s:%s>%s:%s key=%s args=%t policy=%s loop=%t %s", e.Kind, e.FromKind, e.From, e.ToKind, e.To, key, e.FromArguments, e.FromPolicy, e.Loop, e.Problem))
	}
	want := []string{
		"dead-letter queue:keeps>exchange:dlx key=- args=true policy= loop=false no key that messages are known to come with reaches a queue",
		"dead-letter queue:lost>exchange:gone key=- args=false policy=dead loop=false the exchange does not exist",
		"dead-letter queue:nowhere>queue:nobody key=nobody args=true policy= loop=false the key 'nobody' reaches no queue",
		"dead-letter queue:retry>queue:work key=work args=true policy= loop=true ",
		"dead-letter queue:work>exchange:dlx key=retry args=true policy= loop=true ",
		"binding exchange:dlx>queue:retry key=retry args=false policy= loop=true ",
		"binding exchange:dlx>exchange:more key=retry args=false policy= loop=false ",
		"binding exchange:dlx>queue:side key=other args=false policy= loop=false ",
		"binding exchange:more>queue:audit key= args=false policy= loop=false ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("edges:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = nil
	for _, n := range m.Nodes {
		got = append(got, fmt.Sprintf("%s:%s:%t:%t", n.Kind, n.Name, n.Missing, n.Queue != nil))
	}
	if text := strings.Join(got, " "); text != "exchange:dlx:false:false exchange:gone:true:false exchange:more:false:false queue:audit:false:true queue:keeps:false:true queue:lost:false:true queue:nobody:true:false "+
		"queue:nowhere:false:true queue:retry:false:true queue:side:false:true queue:work:false:true" {
		t.Error(text)
	}
}

// A map has at most 5,000 edges, those with problems first, and says how many are not in it.
func TestMapIsBounded(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.exchange("fan", routing.Fanout)
	for i := range 6000 {
		w.queue(fmt.Sprint("q", i), "dlx=fan")
		w.bind("fan", fmt.Sprint("q", i), "")
	}
	w.queue("z", "dlx=gone")
	m := w.drawn()
	if len(m.Edges) != 5000 || m.Edges[0].From != "z" || m.LeftOut != 12_001-5000 || len(m.Nodes) > 10_000 {
		t.Errorf("%d edges, first %+v, %d left out, %d nodes", len(m.Edges), m.Edges[0], m.LeftOut, len(m.Nodes))
	}
}
