package office

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
)

// Plan is what a dry run says.
type Plan struct {
	Token      string  `json:"token"`
	Count      int     `json:"count"` // letters that would be moved
	Routes     []Route `json:"routes"`
	Unroutable []Left  `json:"unroutable"`
	NoOrigin   int     `json:"no_origin"`
	TooOften   int     `json:"too_often"`
	Of         int     `json:"of"` // messages that were looked at
	// Waits are queues of the routes of a replay in which letters would wait: they have no consumer, or their breaker is not closed.
	Waits []Waits `json:"waits,omitempty"`

	Diff []letter.Change `json:"diff,omitempty"` // of an edit
}

// Route is a way that letters go.
type Route struct {
	Exchange   string   `json:"exchange"`
	RoutingKey string   `json:"routing_key"`
	Queues     []string `json:"queues"`
	Letters    int      `json:"letters"`
}

// Waits is a queue that delivers nothing now, or little.
type Waits struct {
	Queue     string `json:"queue"`
	Consumers int    `json:"consumers"`
	Breaker   string `json:"breaker,omitempty"`  // open or trying; else it is left out
	UntilMS   int64  `json:"until_ms,omitempty"` // the breaker is open until then
}

// Left are letters that stay for a reason.
type Left struct {
	Why     string `json:"why"`
	Letters int    `json:"letters"`
}

// maxRoutes is how many routes, and reasons, a plan names. The last stands for all others then.
const maxRoutes = 100

// plan is a dry run whose token is out.
type plan struct {
	request [sha256.Size]byte // Request.key
	user    string
	count   int
	at      int64
	seen    []seenQueue // what it has looked at; nil: that was in too many queues to be remembered
}

// seenQueue is a queue as a dry run found it.
type seenQueue struct {
	incarnation uint64
	partition.Extent
}

// maxSeen is how many queues of a plan are remembered.
const maxSeen = 100

// stands says whether the queues are as the plan has found them, so that it needs no second look. Nothing has come to them and nothing has
// left; a letter that has changed places with one that a consumer had is not noticed.
func (p *plan) stands(now []seenQueue) bool {
	return p.seen != nil && slices.EqualFunc(p.seen, now, func(a, b seenQueue) bool {
		return a.incarnation == b.incarnation && a.Left() == b.Left() && a.Entries == b.Entries && a.Ready == b.Ready && bytes.Equal(a.There.Append(nil), b.There.Append(nil))
	})
}

// meet returns the queues that are meant as they are now, and the places at which a job for them begins.
func (r *Request) meet(c *broker.Connection) (seen []seenQueue, places []place, err error) {
	for _, name := range r.Queues {
		e := r.errand(r.Action, 0)
		incarnation, there, err := letters.As(c).LettersOf(message.QueueName(name), &e, 0)
		if err != nil {
			return nil, nil, err
		}
		seen = append(seen, seenQueue{incarnation, there})
		places = append(places, place{Queue: name, Incarnation: incarnation, Cursor: there.There.Append(nil)})
	}
	return seen, places, nil
}

// keptPlans is how many tokens are valid at a time, userPlans how many of one user, and planTTL for how long, in milliseconds. The
// oldest makes room for a new one.
const keptPlans, userPlans, planTTL = 1000, 50, int64(time.Hour / time.Millisecond)

// key is a hash of what two requests of a user for the same job share. A request may be large.
func (r *Request) key(user string) [sha256.Size]byte {
	same := *r
	same.Token, same.Count, same.AllowGrowth, same.Reason = "", nil, false, ""
	text, _ := json.Marshal(&same) // strings and numbers
	return sha256.Sum256(fmt.Appendf(nil, "%s\n%t\n%s", user, r.Reveal, text))
}

// Dry counts what a job would move, and where to, with the rights of c. Nothing changes.
func (m *Jobs) Dry(ctx context.Context, c *broker.Connection, r *Request) (Plan, error) {
	if err := r.check(); err != nil {
		return Plan{}, err
	}
	if err := m.mayAsk(r); err != nil {
		return Plan{}, err
	}
	at := m.office.deaths() // ages of letters count from it
	survey := m.surveyEdit
	var seen []seenQueue
	var places []place
	var err error
	if r.Action != letters.EditLetter {
		survey = m.survey
		if seen, places, err = r.meet(c); err != nil {
			return Plan{}, err
		}
		if len(seen) > maxSeen {
			seen = nil
		}
	}
	p, err := survey(ctx, c, r, places, at)
	if err != nil {
		return Plan{}, err
	}
	p.Token = strings.ToLower(rand.Text())
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.plans, func(_ string, p *plan) bool { return at-p.at > planTTL })
	m.dropPlans(userPlans, func(p *plan) bool { return p.user == c.User })
	m.dropPlans(keptPlans, func(*plan) bool { return true })
	m.plans[p.Token] = &plan{r.key(c.User), c.User, p.Count, at, seen}
	return p, nil
}

// dropPlans drops the oldest plans that are of a kind, until there may be one more of them. REQUIRES: m.mu is held.
func (m *Jobs) dropPlans(most int, of func(*plan) bool) {
	tokens := slices.DeleteFunc(slices.Collect(maps.Keys(m.plans)), func(t string) bool { return !of(m.plans[t]) })
	slices.SortFunc(tokens, func(a, b string) int { return cmp.Compare(m.plans[a].at, m.plans[b].at) })
	for ; len(tokens) >= most; tokens = tokens[1:] {
		delete(m.plans, tokens[0])
	}
}

// Start starts the job of a dry run, with the rights of c.
func (m *Jobs) Start(ctx context.Context, c *broker.Connection, r *Request) (Job, error) {
	if err := r.check(); err != nil {
		return Job{}, err
	}
	if err := m.mayAsk(r); err != nil {
		return Job{}, err
	}
	m.mu.Lock()
	planned := m.plans[r.Token]
	m.mu.Unlock()
	switch {
	case r.Token == "" || r.Count == nil:
		return Job{}, refuse(BadRequest, "token, count: they are missing; ask with dry_run=true first, and send what it answers")
	case planned == nil || m.office.deaths()-planned.at > planTTL:
		return Job{}, refuse(Conflict, "token: it is not known, or older than an hour; ask with dry_run=true again")
	case planned.request != r.key(c.User):
		return Job{}, refuse(Conflict, "token: it belongs to another request; ask with dry_run=true for this one")
	case *r.Count != planned.count:
		return Job{}, refuse(Conflict, "count: the dry run said %d, not %d", planned.count, *r.Count)
	}
	at := planned.at // ages count from the dry run
	if r.Action == letters.EditLetter {
		return m.startEdit(ctx, c, r, at)
	}
	now, places, err := r.meet(c)
	if err != nil {
		return Job{}, err
	}
	count := planned.count
	if !planned.stands(now) {
		found, err := m.survey(ctx, c, r, places, at)
		if err != nil {
			return Job{}, err
		}
		if count = found.Count; count > planned.count && !r.AllowGrowth {
			return Job{}, refuse(Conflict, "the selection has grown from %d to %d letters since the dry run; ask with dry_run=true again, or with allow_growth", planned.count, count)
		}
	}
	j, err := m.create(c, r, &record{Places: places, At: at}, count, nil)
	if err == nil {
		m.used(r.Token)
	}
	return j, err
}

// used drops a plan that has become a job.
func (m *Jobs) used(token string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.plans, token)
}

// stay counts letters that stay.
func (p *Plan) stay(s *letters.ErrandSlice) {
	p.Of += s.Examined
	p.NoOrigin += s.NoOrigin
	p.TooOften += s.TooOften
}

// survey looks at all letters that are meant, from their places on.
func (m *Jobs) survey(ctx context.Context, c *broker.Connection, r *Request, places []place, at int64) (p Plan, err error) {
	meant := &record{Job: Job{VHost: r.VHost, Filter: r.Filter, Options: r.How, Masked: !r.Reveal}, Names: r.IDs, At: at}
	choose, err := m.newChooser(meant)
	if err != nil {
		return p, err
	}
	if r.ScheduleMS > at+maxSchedule {
		return p, refuse(BadRequest, "schedule_ms: %d is more than a year from now", r.ScheduleMS)
	}
	type way struct{ exchange, key, queues string }
	routes, stays := map[way]int{}, map[string]int{}
	p.Routes, p.Unroutable = []Route{}, []Left{}
	for i := range places {
		name, incarnation := places[i].Queue, places[i].Incarnation
		there, err := places[i].cursor()
		if err != nil {
			return p, err
		}
		e := r.errand(r.Action, 0)
		e.DryRun, e.Spread = true, false
		e.Choose = func(v *queue.View, rec message.Record, history []byte) bool {
			return choose(incarnation, v.ID, rec, history)
		}
		told := func(at *letters.Place) {
			if at.Why != "" {
				why := at.Why
				if _, known := stays[why]; !known && len(stays) >= maxRoutes {
					why = "other reasons"
				}
				stays[why]++
				return
			}
			w := way{at.Exchange, at.Key, strings.Join(at.Queues, "\x00")}
			if _, known := routes[w]; !known && len(routes) >= maxRoutes {
				w = way{key: "(other keys)"}
			}
			routes[w]++
			p.Count++
		}
		var list []listed
		known := meant.known()
		if known {
			if list, err = m.list(ctx, c, meant, &places[i]); err != nil {
				return p, err
			}
		}
		for len(list) > 0 {
			ids := make([]queue.ID, min(len(list), lookSlice))
			for i := range ids {
				ids[i] = list[i].id
			}
			within, over, err := m.office.look(ctx, c.User)
			if err != nil {
				return p, err
			}
			e.Within = within
			s, err := letters.As(c).RunErrandOn(ctx, message.QueueName(name), incarnation, &e, ids, told)
			over()
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return p, err
			}
			list = list[s.Handled:]
			p.stay(&s)
		}
		for done := known; !done; {
			within, over, err := m.office.look(ctx, c.User)
			if err != nil {
				return p, err
			}
			e.Within = within
			s, err := letters.As(c).RunErrand(ctx, message.QueueName(name), incarnation, &e, there, lookSlice, lookSlice, told)
			over()
			if err != nil {
				return p, err
			}
			there, done = s.Next, s.Done
			p.stay(&s)
		}
	}
	if r.Limit > 0 {
		p.Count = min(p.Count, r.Limit)
	}
	for w, n := range routes {
		var queues []string
		if w.queues != "" {
			queues = strings.Split(w.queues, "\x00")
		}
		p.Routes = append(p.Routes, Route{w.exchange, w.key, queues, n})
	}
	slices.SortFunc(p.Routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Exchange, b.Exchange), cmp.Compare(a.RoutingKey, b.RoutingKey))
	})
	if r.Action == letters.Replay {
		p.Waits = m.waits(message.VHost(r.VHost), p.Routes)
	}
	for why, n := range stays {
		p.Unroutable = append(p.Unroutable, Left{why, n})
	}
	slices.SortFunc(p.Unroutable, func(a, b Left) int { return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Why, b.Why)) })
	return p, nil
}

// waits returns queues of the routes that deliver nothing now, at most maxRoutes.
func (m *Jobs) waits(vhost message.VHost, routes []Route) (list []Waits) {
	var queues []broker.QueueInfo
	asked := map[string]bool{}
	m.b.Read(func(s *topology.State, _ *auth.Users) {
		v, ok := s.VHost(vhost)
		for i := 0; ok && i < len(routes); i++ {
			for _, name := range routes[i].Queues {
				if q, there := v.Queue(message.QueueName(name)); there && !asked[name] {
					queues = append(queues, broker.Describe(q))
				}
				asked[name] = true
			}
		}
	})
	for _, q := range queues {
		n := m.b.Counts(q)
		w := Waits{Queue: string(q.Decl.Name), Consumers: n.Consumers}
		switch b := n.Breaker; b.State {
		case queue.BreakerOpen:
			w.Breaker, w.UntilMS = b.State.String(), b.Until
		case queue.BreakerTrying:
			w.Breaker = b.State.String()
		}
		if (w.Consumers == 0 || w.Breaker != "") && len(list) < maxRoutes {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b Waits) int { return cmp.Compare(a.Queue, b.Queue) })
	return list
}
