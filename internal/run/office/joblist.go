package office

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/wire/amqp091"
)

// A job that goes through a queue from its front to its end reads slice by slice. All others list the letters first, by their ids: where
// the order is another one, where letters to one place go apart, and where the selection is known without reading every record:
// ids that were named, and groups, of which the catalogue has the ids.

// listed is a letter that a job is going to look at.
type listed struct {
	id  queue.ID
	key sortKey
}

// sortKey is the value of a header by which letters are sorted: numbers first, then texts, then letters without either.
type sortKey struct {
	Kind   keyKind `json:"kind,omitempty"`
	Number float64 `json:"number,omitempty"`
	Text   string  `json:"text,omitempty"` // its first keyBytes bytes
}

type keyKind uint8

const (
	keyNumber keyKind = iota
	keyText
	keyNone
)

// Bounds of sorting by a header: it keeps the values in memory.
const (
	maxSorted = 100_000 // letters of one queue
	keyBytes  = 32
)

// lists says whether the letters of the job are listed first.
func (r *record) lists() bool {
	return r.known() || r.Options.Order == Newest || r.Options.StaggerMS > 0
}

// known says whether the letters that the job may mean are found without reading all records, or have to be sorted.
func (r *record) known() bool {
	return r.Options.OrderBy != "" || len(r.Names) > 0 || r.Filter["group"] != nil
}

// list lists the letters of a place that the record means, in the order in which they go.
func (m *Jobs) list(ctx context.Context, conn *broker.Connection, r *record, p *place) (list []listed, err error) {
	choose, err := m.newChooser(r)
	if err != nil {
		return nil, err
	}
	there, err := p.cursor()
	if err != nil {
		return nil, err
	}
	q, err := conn.Find(message.QueueName(p.Queue), topology.Read)
	if err != nil {
		return nil, err
	}
	if q.Incarnation() != p.Incarnation {
		return nil, topology.NoQueue(q.Decl.VHost, q.Decl.Name)
	}
	ids, known, err := m.candidates(ctx, q, r)
	if err != nil {
		return nil, err
	}
	sorted := r.Options.OrderBy != ""
	add := func(v *queue.View, rec message.Record, history []byte) bool {
		l := listed{id: v.ID}
		if sorted {
			if len(list) == maxSorted {
				return false
			}
			l.key = keyOf(rec, strings.TrimPrefix(r.Options.OrderBy, orderByHeader))
		}
		list = append(list, l)
		return true
	}
	ends := there.Ends()
	switch {
	case known && !sorted: // a slice looks at the letters again
		for _, id := range ids {
			if id.Lane() < len(ends) && id.Seq() < ends[id.Lane()] {
				list = append(list, listed{id: id})
			}
		}
	case known:
		ids = slices.DeleteFunc(ids, func(id queue.ID) bool { return id.Lane() >= len(ends) || id.Seq() >= ends[id.Lane()] })
		for len(ids) > 0 {
			within, over, err := m.office.look(ctx, conn.User)
			if err != nil {
				return nil, err
			}
			some := ids[:min(len(ids), lookSlice)]
			rest := ids[len(some):]
			err = letters.Look(ctx, m.b, q, some, func(v queue.View, rec message.Record, history []byte) bool {
				if choose(p.Incarnation, v.ID, rec, history) && !add(&v, rec, history) {
					return false
				}
				if within() {
					return true
				}
				rest = ids[slices.Index(some, v.ID)+1:]
				return false
			})
			if over(); err != nil {
				return nil, err
			}
			ids = rest
		}
	default:
		for cursor, done := there, false; !done; {
			within, over, err := m.office.look(ctx, conn.User)
			if err != nil {
				return nil, err
			}
			cursor, done, err = letters.Browse(ctx, m.b, q, cursor, lookSlice, func(v queue.View, rec message.Record, history []byte) bool {
				return (!choose(p.Incarnation, v.ID, rec, history) || add(&v, rec, history)) && within()
			})
			if over(); err != nil {
				return nil, err
			}
			if sorted && len(list) == maxSorted {
				break
			}
		}
	}
	if sorted && len(list) == maxSorted {
		return nil, refuse(BadRequest, "order_by: queue '%s' has %d letters or more of this selection; fewer can be sorted", p.Queue, maxSorted)
	}
	slices.SortFunc(list, r.order)
	if p.Before != 0 {
		last := listed{queue.ID(p.Before), p.BeforeKey}
		i, found := slices.BinarySearchFunc(list, last, r.order)
		if found {
			i++
		}
		list = list[i:]
	}
	return list, nil
}

// order compares letters by when they go.
func (r *record) order(a, b listed) int {
	before := 0
	switch {
	case a.id == b.id:
	case ahead(a.id, b.id):
		before = -1
	default:
		before = 1
	}
	n := cmp.Or(cmp.Compare(a.key.Number, b.key.Number), strings.Compare(a.key.Text, b.key.Text), before)
	if r.Options.Order == Newest {
		n = -n
	}
	return cmp.Or(cmp.Compare(a.key.Kind, b.key.Kind), n)
}

// candidates are the ids of all letters of the queue that may be meant, or known is false: any may.
func (m *Jobs) candidates(ctx context.Context, q broker.QueueInfo, r *record) (ids []queue.ID, known bool, err error) {
	if len(r.Names) > 0 {
		for _, name := range r.Names {
			if incarnation, id, ok := ParseLetterID(name); ok && incarnation == q.Incarnation() {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		return slices.Compact(ids), true, nil
	}
	group := r.Filter["group"]
	if len(group) != 1 {
		return nil, false, nil
	}
	id, ok := letter.ParseGroupID(group[0])
	if !ok {
		return nil, false, nil // the chooser has refused it
	}
	ids, err = m.office.lettersOf(ctx, q, id)
	return ids, true, err
}

// lettersOf returns the letters of a queue that are in a group, by the queue's catalogue, which is brought up to date.
func (f *Office) lettersOf(ctx context.Context, q broker.QueueInfo, group letter.GroupID) (ids []queue.ID, err error) {
	const patience = 24 * time.Hour
	c := f.freshen(ctx, []broker.QueueInfo{q}, patience)[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, gone(q, c.err)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !c.made:
		return nil, fmt.Errorf("the letters of queue '%s' could not be read in %v", q.Decl.Name, patience)
	}
	for _, l := range c.levels {
		for i := range l {
			if c.groups[l[i].group].id == group {
				ids = append(ids, l[i].id)
			}
		}
	}
	return ids, nil
}

// orderByHeader begins what letters can be sorted by.
const orderByHeader = "header."

// keyOf is the value of a header.
func keyOf(rec message.Record, name string) sortKey {
	none := sortKey{Kind: keyNone}
	props, err := amqp091.ParseProps(rec.Properties())
	if err != nil {
		return none
	}
	kind, raw, ok := amqp091.HeaderField(props.Headers, name)
	if !ok {
		return none
	}
	v, err := amqp091.DecodeValue(kind, raw)
	if err != nil {
		return none
	}
	text := func(s string) sortKey {
		return sortKey{Kind: keyText, Text: strings.ToValidUTF8(s[:min(len(s), keyBytes)], "\uFFFD")}
	}
	number := func(f float64) sortKey {
		if math.IsNaN(f) {
			return none
		}
		return sortKey{Number: min(max(f, -math.MaxFloat64), math.MaxFloat64)}
	}
	switch v := v.(type) {
	case string:
		return text(v)
	case []byte:
		return text(string(v))
	case int8:
		return number(float64(v))
	case uint8:
		return number(float64(v))
	case int16:
		return number(float64(v))
	case uint16:
		return number(float64(v))
	case int32:
		return number(float64(v))
	case uint32:
		return number(float64(v))
	case int64:
		return number(float64(v))
	case float32:
		return number(float64(v))
	case float64:
		return number(v)
	case amqp091.Timestamp:
		return number(float64(v))
	case amqp091.Decimal:
		return number(float64(v.Value) / math.Pow10(int(v.Scale)))
	}
	return none
}
