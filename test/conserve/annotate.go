package conserve

import (
	"fmt"
	"strings"

	"bartleby.mq/internal/wire/amqp10"
)

// annotation is what an outcome modified adds to its message (DL-14.6): one key of its own, and one that all outcomes share, of
// which the latest stays. Quorum queues merge them into the message, and it keeps them wherever it goes; classic queues do not.
type annotation struct {
	op int // index of the operation whose outcome it is
}

const (
	annotationOwn    = "x-opt-said-" // and the index of the operation
	annotationLatest = "x-opt-latest"
)

// merges says whether it is a key that outcomes of episodes use.
func merges(key string) bool {
	return key == annotationLatest || strings.HasPrefix(key, annotationOwn)
}

func (n *annotation) key() string { return fmt.Sprint(annotationOwn, n.op) }

// value is that of both keys, as consumers see it.
func (n *annotation) value() string {
	if n.op%4 < 2 {
		return fmt.Sprint(n.op)
	}
	return fmt.Sprint("operation ", n.op)
}

// section is the annotation as the client says it: with a value of another type each time. Numbers become longs, symbols strings.
func (n *annotation) section() amqp10.Value {
	b, start := amqp10.BeginMap(nil)
	for _, key := range []string{n.key(), annotationLatest} {
		b = amqp10.AppendSymbol(b, key)
		switch n.op % 4 {
		case 0:
			b = amqp10.AppendUint(b, uint32(n.op))
		case 1:
			b = amqp10.AppendInt(b, int32(n.op))
		case 2:
			b = amqp10.AppendSymbol(b, n.value())
		default:
			b = amqp10.AppendString(b, n.value())
		}
	}
	return amqp10.MustValue(amqp10.EndCompound(b, start, 4))
}

// carried are the annotations of outcomes that a message came with: as message-annotations or, in AMQP 0-9-1, as headers.
func carried(x *content) (all map[string]string) {
	for _, f := range x.props.Headers {
		if !merges(f.Key) {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[f.Key] = fmt.Sprint(f.Value)
	}
	return all
}

// annotates says whether the outcome of p is one that a quorum queue merges into the message, if it takes place.
func (j *judge) annotates(p *delivery) bool {
	return p.settle != nil && p.settle.annotates != nil && !p.void && j.w.quorum(p.copied.queue)
}

// annotated checks that a message carries what outcomes have said of it and nothing else, from the delivery after it on, through
// deaths and kills (DL-14.6).
func (j *judge) annotated(m *message) {
	all := m.deliveries()
	for _, d := range all {
		for _, key := range sortedKeys(d.carries) {
			j.given(all, d, key)
		}
		if j.l.moved() {
			continue // what shovels carry is a new message, and nobody knows which came first
		}
		for _, p := range all {
			if !j.descends(d, p) {
				continue
			}
			for _, key := range sortedKeys(p.carries) { // it was stored by then
				j.keeps(d, key, p.carries[key], "it came with that before")
			}
			if j.annotates(p) && j.merged(p, d) {
				j.keeps(d, p.settle.annotates.key(), p.settle.annotates.value(), p.settle.what)
				j.newest(all, d, p)
			}
		}
	}
}

// descends says whether d is, or comes of, what p gave back, and was sent after it. What dies into several queues becomes several
// messages, each with a life of its own.
func (j *judge) descends(d, p *delivery) bool {
	same := p.copied == d.copied || !j.w.divides && p.copied.root == d.copied.root
	return same && p != d && d.after(p)
}

// merged says whether the outcome of p certainly took place, and is still known when d is sent.
func (j *judge) merged(p, d *delivery) bool {
	if p.settle.done == 0 {
		return false
	}
	return !j.l.killedBetween(p.at, d.at) || p.synced != 0 && !j.l.killedBetween(p.at, p.synced)
}

func (j *judge) keeps(d *delivery, key, value, why string) {
	got, ok := d.carries[key]
	if ok && (got == value || key == annotationLatest) {
		return
	}
	if !ok {
		got = "nothing"
	}
	j.l.complain("%s in %s [%s]: the annotation %s is %s, want %s (%s) (DL-14.6)", d.copied.m.id, d.copied.queue, d.copied.sig, key, got, value, why)
}

// given checks that somebody has said what d carries before it came.
func (j *judge) given(all []*delivery, d *delivery, key string) {
	for _, p := range all {
		if !j.annotates(p) || p.settle.sent >= d.at {
			continue
		}
		if n := p.settle.annotates; (key == annotationLatest || key == n.key()) && d.carries[key] == n.value() {
			return
		}
	}
	j.l.complain("%s in %s [%s]: nobody has given it the annotation %s=%s (DL-14.6)", d.copied.m.id, d.copied.queue, d.copied.sig, key, d.carries[key])
}

// newest checks that d does not have the shared annotation of an outcome that was certainly before that of p, which it comes of.
func (j *judge) newest(all []*delivery, d, p *delivery) {
	got := d.carries[annotationLatest]
	older := false
	for _, other := range all {
		if !j.annotates(other) || other.settle.annotates.value() != got {
			continue
		}
		if other == p || !j.descends(p, other) {
			return
		}
		older = true
	}
	if older || got == "" {
		j.l.complain("%s in %s [%s]: the annotation %s is %q, and %s came later (DL-14.6)", d.copied.m.id, d.copied.queue, d.copied.sig, annotationLatest, got, p.settle.what)
	}
}
