package office

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
)

// Group is letters that died alike, as the API shows them.
type Group struct {
	ID         string         `json:"id"`
	VHost      message.VHost  `json:"vhost"`
	Source     string         `json:"source"`
	Reason     string         `json:"reason"`
	ErrorClass string         `json:"error_class"`
	Error      string         `json:"error"` // the pattern
	Type       string         `json:"type"`
	Letters    int            `json:"letters"`
	First      int64          `json:"first_ms"`
	Last       int64          `json:"last_ms"`
	Arrivals   Arrivals       `json:"arrivals"`
	Queues     []QueueLetters `json:"queues"`
	Sample     Sample         `json:"sample"`
	Masked     bool           `json:"masked"`
	Note

	number letter.GroupID
}

// Arrivals are a curve of deaths.
type Arrivals struct {
	From   int64 `json:"from_ms"`
	Step   int64 `json:"step_ms"`
	Counts []int `json:"counts"`
}

// QueueLetters is how many letters of a group are in a queue.
type QueueLetters struct {
	Name    message.QueueName `json:"name"`
	Letters int               `json:"letters"`
}

// Sample is a letter to look at: the one that died last.
type Sample struct {
	Queue message.QueueName `json:"queue"`
	ID    string            `json:"id"`
}

// GroupsRequest selects and sorts groups. Zero values select all.
type GroupsRequest struct {
	Scope                              Scope
	Sort                               string // letters (default), last, first, source
	Ascending                          bool
	Limit                              int // 0: 100
	Cursor                             string
	State, Source, Reason, Class, Text string
}

// GroupsAnswer is a page of groups.
type GroupsAnswer struct {
	Items   []*Group `json:"items"`
	Next    *string  `json:"next"`
	Total   int      `json:"total"`   // groups that are selected
	Letters int      `json:"letters"` // in them
	Reading bool     `json:"reading"` // catalogues are being made: there may be more
	Read    int      `json:"read"`    // entries read so far
	Entries int      `json:"entries"` // of so many
}

const (
	defaultGroups = 100
	maxGroupsPage = 1000
	curvePoints   = 60
)

// GroupSorts are what groups can be sorted by.
var GroupSorts = []string{"letters", "last", "first", "source"}

// groupKey names a group: ids are of one virtual host.
type groupKey struct {
	vhost message.VHost
	id    letter.GroupID
}

// Groups returns a page of groups.
func (f *Office) Groups(ctx context.Context, r GroupsRequest) (a GroupsAnswer, err error) {
	r.Sort = cmp.Or(r.Sort, GroupSorts[0])
	if !slices.Contains(GroupSorts, r.Sort) {
		return a, topology.Refuse(topology.PreconditionFailed, "sort '%s' is unknown; it must be one of %s", r.Sort, strings.Join(GroupSorts, ", "))
	}
	if r.State != "" && !slices.Contains(States, r.State) {
		return a, topology.Refuse(topology.PreconditionFailed, "state '%s' is unknown; it must be one of %s", r.State, strings.Join(States, ", "))
	}
	after, err := parseGroupCursor(r.Cursor)
	if err != nil {
		return a, err
	}
	queues := f.queues(&r.Scope)
	if r.Scope.Queue == "" { // what was discarded needs nobody any more
		queues = slices.DeleteFunc(queues, func(q broker.QueueInfo) bool { return q.Decl.Name == broker.Archive })
	}
	list := f.freshen(ctx, queues, Patience)
	found := map[groupKey]*Group{}
	for _, c := range list {
		c.mu.Lock()
		a.Reading = a.Reading || c.busy != nil && !c.made
		a.Read, a.Entries = a.Read+c.done, a.Entries+max(c.total, c.done)
		f.addTo(found, c, r.Scope.Reveal)
		c.mu.Unlock()
	}
	text := strings.ToLower(r.Text)
	var all []*Group
	for key, g := range found {
		f.describe(key, g)
		if mask := f.masks.Mask(string(key.vhost)); mask != nil && !r.Scope.Reveal {
			owner, note := g.Owner, g.Note.Note
			g.Owner, g.Note.Note = mask.Text(owner), mask.Text(note)
			g.Masked = g.Masked || owner != g.Owner || note != g.Note.Note
		}
		if r.State != "" && g.State != r.State || r.Source != "" && g.Source != r.Source || r.Reason != "" && g.Reason != r.Reason ||
			r.Class != "" && g.ErrorClass != r.Class && !strings.HasSuffix(g.ErrorClass, "."+r.Class) || text != "" && !g.mentions(text) {
			continue
		}
		a.Letters += g.Letters
		all = append(all, g)
	}
	a.Total = len(all)
	order := func(x, y *Group) int {
		n := groupCursor{x.sortKey(r.Sort), x.number, x.VHost}.compare(groupCursor{y.sortKey(r.Sort), y.number, y.VHost})
		if !r.Ascending {
			n = -n
		}
		return n
	}
	slices.SortFunc(all, order)
	if after != nil {
		all = slices.DeleteFunc(all, func(g *Group) bool {
			n := groupCursor{g.sortKey(r.Sort), g.number, g.VHost}.compare(*after)
			return n == 0 || n < 0 == r.Ascending
		})
	}
	limit := min(cmp.Or(max(r.Limit, 0), defaultGroups), maxGroupsPage)
	a.Items = all[:min(limit, len(all))]
	if len(all) > limit {
		g := a.Items[limit-1]
		next := groupCursor{g.sortKey(r.Sort), g.number, g.VHost}.String()
		a.Next = &next
	}
	if a.Items == nil {
		a.Items = []*Group{}
	}
	draw(list, a.Items, f.deaths())
	return a, nil
}

// addTo adds the letters of a catalogue to the groups. REQUIRES: its mu is held.
func (f *Office) addTo(found map[groupKey]*Group, c *catalogue, reveal bool) {
	type tally struct {
		n           int
		first, last uint32
		sample      queue.ID
	}
	tallies := make([]tally, len(c.groups))
	for _, l := range c.levels {
		for i := range l {
			e := &l[i]
			t := &tallies[e.group]
			if t.n++; t.n == 1 || e.died < t.first {
				t.first = e.died
			}
			if e.died >= t.last {
				t.last, t.sample = e.died, e.id
			}
		}
	}
	q := c.info.Decl
	for i := range tallies {
		t := &tallies[i]
		if t.n == 0 {
			continue
		}
		of := &c.groups[i]
		key := groupKey{q.VHost, of.id}
		g := found[key]
		if g == nil {
			shown := f.shown(of, q.VHost, reveal)
			g = &Group{
				ID: of.id.String(), VHost: q.VHost, Source: shown.Source, Reason: shown.Reason, ErrorClass: shown.Class, Error: shown.Error, Type: shown.Type, Masked: shown != of.key,
				First: int64(t.first) * 1000, number: of.id,
			}
			found[key] = g
		}
		g.Letters += t.n
		g.First = min(g.First, int64(t.first)*1000)
		if last := int64(t.last) * 1000; last > g.Last {
			g.Last = last
			g.Sample = Sample{q.Name, letters.LetterID(c.info.Incarnation(), t.sample)}
		}
		g.Queues = append(g.Queues, QueueLetters{q.Name, t.n})
	}
}

func (g *Group) mentions(text string) bool {
	for _, s := range []string{g.ErrorClass, g.Error, g.Type, g.Source, g.ID} {
		if strings.Contains(strings.ToLower(s), text) {
			return true
		}
	}
	return false
}

// steps are the spans between the points of a curve, in seconds.
var steps = []int64{10, 60, 5 * 60, 15 * 60, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 30 * 24 * 3600}

// draw fills in the curves of groups. Each begins with the group's first death; the last point is now.
func draw(list []*catalogue, groups []*Group, at int64) {
	of := map[groupKey]*Group{}
	for _, g := range groups {
		span := max(0, at-g.First) / 1000
		i := 0
		for i < len(steps)-1 && steps[i]*(curvePoints-1) < span {
			i++
		}
		end := at/1000/steps[i] + 1
		g.Arrivals = Arrivals{From: (end - curvePoints) * steps[i] * 1000, Step: steps[i] * 1000, Counts: make([]int, curvePoints)}
		of[groupKey{g.VHost, g.number}] = g
	}
	for _, c := range list {
		c.mu.Lock()
		curves := make([]*Group, len(c.groups))
		any := false
		for i := range c.groups {
			curves[i] = of[groupKey{c.info.Decl.VHost, c.groups[i].id}]
			any = any || curves[i] != nil
		}
		for _, l := range c.levels {
			for i := range l {
				if !any {
					break
				}
				if g := curves[l[i].group]; g != nil {
					if n := (int64(l[i].died)*1000 - g.Arrivals.From) / g.Arrivals.Step; n >= 0 {
						g.Arrivals.Counts[min(n, curvePoints-1)]++
					}
				}
			}
		}
		c.mu.Unlock()
	}
}

func (g *Group) sortKey(by string) string {
	switch by {
	case "last":
		return fmt.Sprintf("%020d", g.Last)
	case "first":
		return fmt.Sprintf("%020d", g.First)
	case "source":
		return g.Source
	}
	return fmt.Sprintf("%020d", g.Letters)
}

// groupCursor is the last group of a page.
type groupCursor struct {
	key    string
	number letter.GroupID
	vhost  message.VHost
}

func (c groupCursor) compare(o groupCursor) int {
	return cmp.Or(cmp.Compare(c.key, o.key), cmp.Compare(c.number, o.number), cmp.Compare(c.vhost, o.vhost))
}

// String is opaque to clients.
func (c groupCursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(c.number.String() + " " + strconv.Itoa(len(c.key)) + " " + c.key + string(c.vhost)))
}

func parseGroupCursor(s string) (*groupCursor, error) {
	if s == "" {
		return nil, nil
	}
	wrong := topology.Refuse(topology.PreconditionFailed, "cursor '%s' is none; it must be next of the page before", s)
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, wrong
	}
	id, rest, _ := strings.Cut(string(b), " ")
	length, rest, _ := strings.Cut(rest, " ")
	number, ok := letter.ParseGroupID(id)
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || n > len(rest) {
		return nil, wrong
	}
	return &groupCursor{rest[:n], number, message.VHost(rest[n:])}, nil
}
