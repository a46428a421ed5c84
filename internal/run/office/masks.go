package office

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
)

// maskKey begins the keys of masks, after datadir.RecordPrefix. A virtual host is written as in the keys of notes; the number is 0.
//
//	mask/ | virtual host | 0 u64    letter.MaskRules
const maskKey = "mask/"

// Masks are those of all virtual hosts. Any number of goroutines may use them. A nil Masks has none.
type Masks struct {
	setting sync.Mutex // held while masks are set; taken before all others
	mu      sync.Mutex // guards of; no other is taken under it
	of      map[string]*letter.Mask
}

// openMasks reads what the store has. A mask that cannot be read hides all that a mask can hide.
func openMasks(b *broker.Broker, logger *slog.Logger) (*Masks, error) {
	m := &Masks{of: map[string]*letter.Mask{}}
	all, err := letter.NewMask(letter.MaskRules{Paths: []string{"$"}, Patterns: []string{`(?s).+`}})
	if err != nil {
		return nil, err
	}
	if err := endStrays(b, maskKey); err != nil {
		return nil, err
	}
	b.OnVHostEnd(m.endVHost(b))
	err = b.RangeRecords(maskKey, func(key, value []byte) error {
		vhost, _, ok := splitKey(key, maskKey)
		if !ok {
			return nil
		}
		var rules letter.MaskRules
		err := json.Unmarshal(value, &rules)
		mask := all
		if err == nil {
			var made *letter.Mask
			if made, err = letter.NewMask(rules); err == nil {
				mask = made
			}
		}
		if err != nil {
			logger.Error("The masks of a virtual host cannot be read: all of its letters are hidden until they are set again", "vhost", vhost, "error", err)
		}
		m.of[vhost] = mask
		return nil
	})
	return m, err
}

// endVHost returns what forgets the masks of a virtual host that is deleted.
func (m *Masks) endVHost(b *broker.Broker) func(message.VHost, broker.Doer) {
	return func(name message.VHost, _ broker.Doer) {
		m.setting.Lock()
		defer m.setting.Unlock()
		m.set(string(name), nil)
		endRecords(b, maskKey, name)
	}
}

// set puts a mask in force; nil: there is none.
func (m *Masks) set(vhost string, mask *letter.Mask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mask == nil {
		delete(m.of, vhost)
	} else {
		m.of[vhost] = mask
	}
}

// Mask is the mask of a virtual host, nil if it has none.
func (m *Masks) Mask(vhost string) *letter.Mask {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[vhost]
}

// Masks are the masks of the office.
func (f *Office) Masks() *Masks { return f.masks }

// SetMask sets the masks of a virtual host. It returns when they are on disk; whoever asks from then on is shown letters behind them.
func (f *Office) SetMask(vhost message.VHost, rules letter.MaskRules, by Actor) (letter.MaskRules, error) {
	mask, err := letter.NewMask(rules)
	if err != nil {
		return rules, topology.Refuse(topology.PreconditionFailed, "%s", err)
	}
	rules = mask.Rules()
	var value []byte
	if mask != nil {
		value, _ = json.Marshal(rules) // texts: never fails
	}
	f.masks.setting.Lock()
	defer f.masks.setting.Unlock()
	if !f.b.HasVHost(vhost, 0) {
		return rules, topology.Refuse(topology.NotFound, "there is no virtual host '%s'", vhost)
	}
	detail, _ := json.Marshal(map[string]any{"headers": len(rules.Headers), "paths": len(rules.Paths), "patterns": len(rules.Patterns), "headers_and_paths": append(slices.Clone(rules.Headers), rules.Paths...)})
	act := Act{Actor: by, What: "masks.changed", VHost: string(vhost), Object: string(vhost), Detail: string(detail)}
	if err := f.audit.With(act, []mutation.Change{{Key: appendKey([]byte(datadir.RecordPrefix), maskKey, string(vhost), 0), Value: value}}); err != nil {
		return rules, err
	}
	f.masks.set(string(vhost), mask)
	f.Rules.masked(vhost)
	f.forgetVHost(vhost)
	return rules, nil
}

// forgetVHost drops the catalogues of a virtual host: what they show of groups was read behind another mask.
func (f *Office) forgetVHost(vhost message.VHost) {
	incarnations := map[uint64]bool{}
	f.b.Read(func(s *topology.State, _ *auth.Users) {
		if v, ok := s.VHost(vhost); ok {
			v.EachQueue(func(q *topology.Queue) { incarnations[q.Incarnation] = true })
		}
	})
	cs := &f.catalogues
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for n := range incarnations {
		delete(cs.of, n)
	}
}

// reader reads letters of a virtual host.
func (m *Jobs) reader(vhost string, masked bool) *letter.Reader {
	r := letter.NewReader(m.office.Names)
	if masked {
		r = r.Masked(m.office.masks.Mask(vhost))
	}
	return r
}

// mayAsk refuses a filter or an order that would tell what the mask hides.
func (m *Jobs) mayAsk(r *Request) error {
	mask := m.office.masks.Mask(r.VHost)
	if r.Reveal || mask == nil {
		return nil
	}
	q, err := letter.ParseQuery(r.VHost, r.Filter, m.office.deaths())
	if err != nil {
		return refuse(BadRequest, "%v", err)
	}
	if r.OrderBy != "" && (mask.HidesText() || mask.HidesHeader(strings.TrimPrefix(r.OrderBy, orderByHeader))) {
		return refuse(Forbidden, "order_by: '%s' would tell what the masks of vhost '%s' hide; it needs reveal=true, and the tag reveal", r.OrderBy, r.VHost)
	}
	if name := q.Asks(mask); name != "" {
		return refuse(Forbidden, "filter '%s' would tell what the masks of vhost '%s' hide; it needs reveal=true, and the tag reveal", name, r.VHost)
	}
	return nil
}

// hideFilter is a filter of a job as it is shown behind a mask: of what somebody has asked who saw hidden values, only the names of filters.
func hideFilter(m *letter.Mask, filter map[string][]string, masked bool) map[string][]string {
	if m == nil || filter == nil {
		return filter
	}
	shown := map[string][]string{}
	for name, values := range filter {
		for _, v := range values {
			switch {
			case masked:
				v = m.Text(v)
			case name != "where":
				v = letter.Hidden
			case strings.ContainsAny(v, "=!~<>"):
				v = m.Text(v[:strings.IndexAny(v, "=!~<>")]) + "=" + letter.Hidden
			default:
				v = m.Text(v)
			}
			shown[name] = append(shown[name], v)
		}
	}
	return shown
}

// Behind is the job as it is shown behind a mask, which may be nil.
func (j Job) Behind(m *letter.Mask) Job {
	if m == nil {
		return j
	}
	j.Filter = hideFilter(m, j.Filter, j.Masked)
	j.Why, j.Reason = m.Text(j.Why), m.Text(j.Reason)
	for _, text := range []**string{&j.Options.ToExchange, &j.Options.RoutingKey} {
		if *text != nil {
			*text = new(m.Text(**text))
		}
	}
	return j
}

// Behind is the book as it is shown behind a mask, which may be nil.
func (b RuleBook) Behind(m *letter.Mask) RuleBook {
	b.Rules = slices.Clone(b.Rules)
	for i := range b.Rules {
		s := &b.Rules[i]
		s.Match, s.Why = hideFilter(m, s.Match, !s.revealed), m.Text(s.Why)
	}
	return b
}

// HideFilter is a filter of somebody who sees what a mask hides, as it is shown behind the mask, which may be nil: only the names of its filters.
func HideFilter(m *letter.Mask, filter map[string][]string) map[string][]string {
	return hideFilter(m, filter, false)
}

// Behind is the plan as it is shown behind a mask, which may be nil.
func (p Plan) Behind(m *letter.Mask) Plan {
	if m == nil {
		return p
	}
	p.Routes, p.Unroutable = slices.Clone(p.Routes), slices.Clone(p.Unroutable)
	for i := range p.Routes {
		r := &p.Routes[i]
		r.Exchange, r.RoutingKey, r.Queues = m.Text(r.Exchange), m.Text(r.RoutingKey), m.Texts(r.Queues)
	}
	p.Diff = slices.Clone(p.Diff)
	for i := range p.Diff { // of a letter of which nothing was hidden
		p.Diff[i].After = m.Value(p.Diff[i].After)
	}
	for i := range p.Unroutable {
		p.Unroutable[i].Why = m.Text(p.Unroutable[i].Why)
	}
	return p
}

// Behind is the entry as it is shown behind a mask, which may be nil.
func (e *DropEntry) Behind(m *letter.Mask) DropEntry {
	shown := *e
	if m != nil {
		shown.Exchange, shown.Keys, shown.MessageID, shown.Type = m.Text(e.Exchange), m.Texts(e.Keys), m.Text(e.MessageID), m.Text(e.Type)
	}
	return shown
}

// Ended is the job without what only masks could tell apart: its virtual host is gone, and its masks are gone with it.
func (j Job) Ended() Job {
	if j.Filter != nil {
		j.Filter = hideFilter(&letter.Mask{}, j.Filter, false)
	}
	for _, text := range []*string{&j.Why, &j.Reason} {
		if *text != "" {
			*text = letter.Hidden
		}
	}
	for _, text := range []**string{&j.Options.ToExchange, &j.Options.RoutingKey} {
		if *text != nil {
			*text = new(letter.Hidden)
		}
	}
	return j
}

// Ended is the entry without its reason and detail: its virtual host is gone, and its masks are gone with it.
func (e Entry) Ended() Entry {
	for _, text := range []*string{&e.Why, &e.Detail} {
		if *text != "" {
			*text = letter.Hidden
		}
	}
	return e
}

// Behind is the entry as it is shown behind a mask, which may be nil.
func (e Entry) Behind(m *letter.Mask) Entry {
	if m != nil {
		e.Object, e.Why, e.Detail = m.Document(e.Object), m.Document(e.Why), m.Document(e.Detail)
	}
	return e
}
