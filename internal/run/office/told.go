package office

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/datadir"
)

// A rule that tells a webhook leaves the letter where it is, so something must say which letters it has told of: a place in each
// queue, which is written together with what waits to be told.

// toldKey names a place.
type toldKey struct {
	vhost       message.VHost
	rule        string
	incarnation uint64 // of the queue; goneQueues: all that were deleted
}

// goneQueues stands for the incarnation of all queues that were deleted: their places are added up, so that a rule still says how many
// letters it has told of. No queue has it.
const goneQueues = 0

// endSlice is how many places end in one write.
const endSlice = 512

// toldPlace is how far a rule has told of the letters of a queue. Its JSON is its form in the store.
type toldPlace struct {
	Rule        string   `json:"rule"`
	Queue       string   `json:"queue"`
	Incarnation uint64   `json:"incarnation"`
	Ends        []uint64 `json:"ends"` // by level: letters with lower numbers are told of
	Told        uint64   `json:"told"` // letters
	LastMS      int64    `json:"last_ms"`
	Gone        names    `json:"gone,omitzero"` // of goneQueues: those of whose letters it has told
}

func (p *toldPlace) key(vhost message.VHost) []byte {
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Rule)) // it never fails
	return appendKey([]byte(datadir.RecordPrefix), toldPrefix, string(vhost), h.Sum64()^p.Incarnation*0x9e3779b97f4a7c15)
}

func (p *toldPlace) change(vhost message.VHost) mutation.Change {
	value, _ := json.Marshal(p) // texts and numbers: it never fails
	return mutation.Change{Key: p.key(vhost), Value: value}
}

// name names the place.
func (p *toldPlace) name(vhost message.VHost) toldKey { return toldKey{vhost, p.Rule, p.Incarnation} }

// reached is the number below which all letters of a level are told of.
func (p *toldPlace) reached(level int) uint64 {
	if level < len(p.Ends) {
		return p.Ends[level]
	}
	return 0
}

// knows says whether the rule has told of an entry.
func (p *toldPlace) knows(id queue.ID) bool {
	return id.Lane() < len(p.Ends) && id.Seq() < p.Ends[id.Lane()]
}

// reach notes that all letters of a level with numbers below end are told of.
func (p *toldPlace) reach(level int, end uint64) {
	for len(p.Ends) <= level {
		p.Ends = append(p.Ends, 0)
	}
	p.Ends[level] = max(p.Ends[level], end)
}

// loadTold reads the places.
func (r *Rules) loadTold() error {
	return r.b.RangeRecords(toldPrefix, func(key, value []byte) error {
		name, _, ok := splitKey(key, toldPrefix)
		p := new(toldPlace)
		if err := json.Unmarshal(value, p); !ok || err != nil {
			r.log.Warn("How far a rule has told a webhook cannot be read: it may tell of letters again", "vhost", name, "error", err)
			return nil
		}
		r.told[toldKey{message.VHost(name), p.Rule, p.Incarnation}] = p
		return nil
	})
}

// endTold ends the places in queues that are not there any more. It is called by the watch, which alone makes places, or before it runs.
func (r *Rules) endTold() error {
	r.mu.Lock()
	queues := map[toldKey]message.QueueName{}
	for k, p := range r.told {
		if k.incarnation != goneQueues {
			queues[k] = message.QueueName(p.Queue)
		}
	}
	r.mu.Unlock()
	if len(queues) == 0 {
		return nil
	}
	var gone []toldKey
	r.b.Read(func(s *topology.State, _ *auth.Users) { // it waits for declarations: mu is not held
		for k, name := range queues {
			if v, ok := s.VHost(k.vhost); ok {
				if q, ok := v.Queue(name); ok && q.Incarnation == k.incarnation {
					continue
				}
			}
			gone = append(gone, k)
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	gone = slices.DeleteFunc(gone, func(k toldKey) bool { return r.told[k] == nil }) // its rule has gone meanwhile
	for slice := range slices.Chunk(gone, endSlice) {
		sums := map[toldKey]*toldPlace{}
		var changes []mutation.Change
		for _, k := range slice {
			p, sum := r.told[k], toldKey{k.vhost, k.rule, goneQueues}
			if sums[sum] == nil {
				sums[sum] = &toldPlace{Rule: k.rule, Gone: names{}}
				if was := r.told[sum]; was != nil {
					*sums[sum] = *was
				}
			}
			if p.Told > 0 {
				sums[sum].Gone = sums[sum].Gone.with(p.Queue)
			}
			sums[sum].Told += p.Told
			sums[sum].LastMS = max(sums[sum].LastMS, p.LastMS)
			changes = append(changes, mutation.Change{Key: p.key(k.vhost)})
		}
		for k, p := range sums {
			changes = append(changes, p.change(k.vhost))
		}
		if err := r.b.PutRecords(mutation.All(changes), false); err != nil {
			return err
		}
		for _, k := range slice {
			delete(r.told, k)
		}
		maps.Copy(r.told, sums)
	}
	return nil
}

// place returns a copy of the place of a rule in a queue, which is empty at first.
func (r *Rules) place(k toldKey, q message.QueueName) toldPlace {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.told[k]; p != nil {
		c := *p
		c.Ends = slices.Clone(c.Ends)
		return c
	}
	return toldPlace{Rule: k.rule, Queue: string(q), Incarnation: k.incarnation}
}

// tellRule tells the webhook of a rule of letters, and stores with that how far it is. If the webhook cannot be told now it says after how
// long to try again. Nothing is told if the rule is not there any more.
func (r *Rules) tellRule(a *activeRule, k toldKey, p *toldPlace, rows []Row) (wait time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.books[k.vhost]
	if b == nil || !slices.Contains(b.active, a) {
		return 0, nil
	}
	c := *p
	c.Ends = slices.Clone(p.Ends)
	var more []mutation.Change
	if len(rows) > 0 {
		c.Told, c.LastMS = c.Told+uint64(len(rows)), r.now()
		a.tried = names{}.with(a.tried...).with(p.Queue)
		more = append(more, c.change(k.vhost))
		var why string
		wait, why, err = r.hooks.tellOf(a.Webhook, k.vhost, letterTell{Rule: a.Name, VHost: string(k.vhost), Queue: p.Queue, Letters: rows}, more)
		if a.why.Store(nil); why != "" {
			a.why.Store(&why)
		}
		if wait > 0 || err != nil {
			return wait, err
		}
	} else if err := r.b.PutRecords(mutation.All([]mutation.Change{c.change(k.vhost)}), false); err != nil {
		return 0, err
	}
	r.told[k] = &c
	return 0, nil
}
