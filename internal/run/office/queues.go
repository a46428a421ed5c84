package office

import (
	"context"
	"maps"
	"slices"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
)

// Patience is how long a request waits for catalogues before it answers with what is known.
const Patience = time.Second

// Scope says which queues a request is about.
type Scope struct {
	VHost *message.VHost // nil: all
	Queue message.QueueName
	// May says whether the client may see a queue; nil: all. It may wait for a backend.
	May func(broker.QueueInfo) bool
	// Reveal shows letters as they are, and not as they are behind the mask.
	Reveal bool
}

// queues returns the queues of a scope that hold letters, or that dead-lettering leads to.
func (f *Office) queues(s *Scope) (list []broker.QueueInfo) {
	var all []broker.QueueInfo
	there := map[uint64]bool{}
	f.b.Read(func(state *topology.State, _ *auth.Users) {
		for _, v := range state.VHosts() {
			v.EachQueue(func(q *topology.Queue) {
				info := broker.Describe(q)
				there[info.Incarnation()] = true
				if (s.VHost == nil || v.Name == *s.VHost) && (s.Queue == "" || q.Name == s.Queue) {
					all = append(all, info)
				}
			})
		}
	})
	f.dropMissing(there)
	targets := f.b.DeadLetterTargets()
	for _, q := range broker.SortQueues(all) {
		if (targets[q.Decl] || f.hasLetters(q)) && (s.May == nil || s.May(q)) {
			list = append(list, q)
		}
	}
	return list
}

// dropMissing drops what is known of queues that are not there any more.
func (f *Office) dropMissing(there map[uint64]bool) {
	cs := &f.catalogues
	cs.mu.Lock()
	defer cs.mu.Unlock()
	maps.DeleteFunc(cs.of, func(n uint64, _ *catalogue) bool { return !there[n] })
	maps.DeleteFunc(cs.looked, func(n uint64, _ uint64) bool { return !there[n] })
}

// queueEnd is how many entries are looked at on each end of a queue.
const queueEnd = 4

// hasLetters says whether the queue is known to hold letters, or has one among its first or last entries.
func (f *Office) hasLetters(q broker.QueueInfo) bool {
	cs := &f.catalogues
	cs.mu.Lock()
	c, looked := cs.of[q.Incarnation()], cs.looked[q.Incarnation()]
	cs.mu.Unlock()
	if c != nil {
		c.mu.Lock()
		known := c.letters() > 0
		c.mu.Unlock()
		if known {
			return true
		}
	}
	e, err := letters.Extent(f.b, q)
	if err != nil || e.Entries == 0 {
		return false
	}
	issued := e.Left() + uint64(e.Entries)
	if looked == issued {
		return false
	}
	reader := letter.NewReader(f.Names)
	found := false
	look := func(after queue.Cursor) {
		_, _, _ = letters.Browse(f.life, f.b, q, after, queueEnd, func(_ queue.View, r message.Record, history []byte) bool {
			_, found = reader.Read(r, history)
			return !found
		})
	}
	look(e.There)
	for level, end := range e.There.Ends() {
		if !found && end > 0 {
			look(e.There.At(level, max(end, queueEnd)-queueEnd))
		}
	}
	if !found {
		cs.mu.Lock()
		cs.looked[q.Incarnation()] = issued
		cs.mu.Unlock()
	}
	return found
}

// QueueRow is a queue of the office.
type QueueRow struct {
	VHost          message.VHost     `json:"vhost"`
	Name           message.QueueName `json:"name"`
	Type           string            `json:"type"`
	Letters        int               `json:"letters"`
	Others         int               `json:"others"`
	Oldest         int64             `json:"oldest_ms"` // 0: no letters
	Arrived        Arrived           `json:"arrived"`
	Sources        []string          `json:"sources"`
	Consumers      int               `json:"consumers"`
	MaxLength      *int64            `json:"max_length"`
	MaxLengthBytes *int64            `json:"max_length_bytes"`
	Bytes          int64             `json:"bytes"`
	Reading        bool              `json:"reading"`
	Read           int               `json:"read"`
	Total          int               `json:"total"`
}

// Arrived counts letters by how long ago they died.
type Arrived struct {
	Minutes int `json:"5m"`
	Hour    int `json:"1h"`
	Day     int `json:"24h"`
}

// Queues lists the queues of a scope, by virtual host and name.
func (f *Office) Queues(ctx context.Context, s Scope) []QueueRow {
	list := []QueueRow{}
	for _, c := range f.freshen(ctx, f.queues(&s), Patience) {
		list = append(list, f.row(c, s.Reveal))
	}
	return list
}

func (f *Office) row(c *catalogue, reveal bool) QueueRow {
	at := f.deaths() / 1000
	c.mu.Lock()
	info := c.info
	r := QueueRow{
		VHost: info.Decl.VHost, Name: info.Decl.Name, Type: "classic", MaxLength: info.Effective.MaxLength, MaxLengthBytes: info.Effective.MaxLengthBytes,
		Reading: c.busy != nil, Read: c.done, Total: c.total, Sources: []string{},
	}
	used := make([]bool, len(c.groups))
	oldest := int64(0)
	for _, l := range c.levels {
		r.Letters += len(l)
		for i := range l {
			used[l[i].group] = true
			died := int64(l[i].died)
			if oldest == 0 || died < oldest {
				oldest = died
			}
			switch age := at - died; {
			case age <= 5*60:
				r.Arrived.Minutes++
				fallthrough
			case age <= 60*60:
				r.Arrived.Hour++
				fallthrough
			case age <= 24*60*60:
				r.Arrived.Day++
			}
		}
	}
	r.Oldest = oldest * 1000
	for g, is := range used {
		if source := f.shown(&c.groups[g], info.Decl.VHost, reveal).Source; is && !slices.Contains(r.Sources, source) && len(r.Sources) < maxSources {
			r.Sources = append(r.Sources, source)
		}
	}
	c.mu.Unlock()
	slices.Sort(r.Sources)
	if info.Quorum() {
		r.Type = "quorum"
	}
	n := f.b.Counts(info)
	r.Others = max(0, n.Ready+n.Out+n.Delayed+n.Dying+n.Held+n.Offered-r.Letters)
	r.Consumers, r.Bytes = n.Consumers, n.ReadyBytes+n.OutBytes+n.DelayedBytes+n.DyingBytes+n.HeldBytes+n.OfferedBytes
	return r
}

// maxSources is how many sources a queue names.
const maxSources = 100
