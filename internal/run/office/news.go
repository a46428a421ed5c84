package office

import (
	"math/bits"
	"time"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/wire/amqp091"
)

// The events of the watch.
const (
	groupEvent     = "letter.group.created"
	thresholdEvent = "letter.threshold"
)

// Bounds of events about groups: a client may make each letter a group of its own.
const (
	maxKnownGroups = 200_000 // of those beyond no event tells
	groupsAMinute  = 100     // of a virtual host
	eventEvery     = time.Minute
)

// groupNews knows which groups have had a letter, since the watch began. The first letter of another one is news, and so is
// one of a group that somebody has called resolved.
type groupNews struct {
	known  map[groupKey]*seenGroup
	minute int64                 // for which said counts
	said   map[message.VHost]int // events in it
	unsaid map[message.VHost]int // events that were too many, since the last one that was said
}

type seenGroup struct {
	told int64 // when an event last told of it; 0: none did
	note int64 // Note.At of the note that called it resolved, when a letter came again
}

// groupEventOf is a group that a slice has made known.
type groupEventOf struct {
	groupKey
	key    letter.Key // as masks show it
	letter string
	note   int64
	again  bool
	quiet  bool // it is known now, and no event tells of it
}

func (w *watch) wantsGroups() bool { return w.r.b.Eventful() || w.r.hooks.wants(groupEvent) }

// note looks whether a letter is news, and adds that to what the slice has found.
func (n *groupNews) note(w *watch, q *watched, v *queue.View, l *letter.Letter, now int64, f *found) {
	k := l.Group()
	vhost := q.info.Decl.VHost
	key := groupKey{vhost, k.ID(string(vhost))}
	if f.seen[key] {
		return
	}
	quiet := v.ID.Lane() < len(q.quiet) && v.ID.Seq() < q.quiet[v.ID.Lane()]
	resolved := w.r.f.resolvedAt(key)
	again := resolved != 0 && l.Died > resolved
	e := groupEventOf{groupKey: key, key: l.GroupShown(), letter: letters.LetterID(q.info.Incarnation(), v.ID), again: again, quiet: quiet}
	if again {
		e.note = resolved
	}
	if s := n.known[key]; s != nil && (quiet || !again || s.note == resolved || now-s.told < eventEvery.Milliseconds()) {
		return
	}
	if f.seen == nil {
		f.seen = map[groupKey]bool{}
	}
	f.seen[key] = true
	f.news = append(f.news, e)
}

// resolvedAt is when somebody has called a group resolved, 0 if nobody has.
func (f *Office) resolvedAt(k groupKey) int64 {
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	if n := f.notes.of[k]; n.State == "resolved" {
		return n.At
	}
	return 0
}

// tell makes groups known, and tells of those that are news.
func (n *groupNews) tell(w *watch, q *watched, news []groupEventOf) {
	now := w.r.now()
	for i := range news {
		e := &news[i]
		s := n.known[e.groupKey]
		if s == nil {
			if len(n.known) >= maxKnownGroups {
				continue
			}
			s = new(seenGroup)
			n.known[e.groupKey] = s
		}
		if s.note = e.note; e.quiet {
			continue
		}
		s.told = now
		if minute := now / eventEvery.Milliseconds(); minute != n.minute || n.said == nil {
			n.minute, n.said = minute, map[message.VHost]int{}
		}
		if n.unsaid == nil {
			n.unsaid = map[message.VHost]int{}
		}
		if n.said[e.vhost]++; n.said[e.vhost] > groupsAMinute {
			n.unsaid[e.vhost]++
			continue
		}
		unsaid := n.unsaid[e.vhost]
		delete(n.unsaid, e.vhost)
		w.r.b.Notify(groupEvent, func() amqp091.Table {
			facts := amqp091.Table{
				fact("vhost", string(e.vhost)), fact("group", e.id.String()), fact("queue", string(q.info.Decl.Name)), fact("letter", e.letter),
				fact("source", e.key.Source), fact("reason", e.key.Reason), fact("error_class", e.key.Class), fact("error", e.key.Error), fact("type", e.key.Type),
				fact("again", e.again),
			}
			if unsaid > 0 {
				facts = append(facts, fact("unsaid", int64(unsaid)))
			}
			return facts
		})
	}
}

// height says how far the messages of a queue are above the threshold of its virtual host: 0 below it, then one for each doubling.
func (w *watch) height(q *watched, n int) int {
	threshold := w.r.threshold(q.info.Decl.VHost)
	if threshold == 0 || n < threshold {
		return 0
	}
	return bits.Len(uint(n / threshold))
}

// threshold tells of a queue that holds more than before, as far as the threshold and its doublings are concerned; at most once a minute.
func (w *watch) threshold(q *watched, n int) {
	height, now := w.height(q, n), w.r.now()
	switch {
	case height <= q.height:
		if w.height(q, min(2*n, maxThreshold)) < q.height { // it must fall to the half before it is news again
			q.height = height
		}
		return
	case q.told != 0 && now-q.told < eventEvery.Milliseconds() && now >= q.told:
		return
	}
	q.height, q.told = height, now
	threshold := w.r.threshold(q.info.Decl.VHost) // facts take no lock
	w.r.b.Notify(thresholdEvent, func() amqp091.Table {
		return amqp091.Table{
			fact("vhost", string(q.info.Decl.VHost)), fact("queue", string(q.info.Decl.Name)), fact("letters", int64(n)),
			fact("threshold", int64(threshold)),
		}
	})
}

// threshold is that of a virtual host, 0 for none.
func (r *Rules) threshold(vhost message.VHost) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.books[vhost]; b != nil {
		return b.threshold
	}
	return DefaultThreshold
}
