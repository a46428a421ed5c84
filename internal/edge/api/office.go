package api

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/office"
)

// officeRoutes are the resources of the Dead Letter Office (docs/internals/office.md).
func (s *server) officeRoutes() []route {
	if s.Office == nil {
		return nil
	}
	return []route{
		{"GET", "office/queues", managing, s.listOfficeQueues},
		{"GET", "office/queues/{vhost}", managing, s.listOfficeQueues},
		{"GET", "office/retries", managing, s.listRetries},
		{"GET", "office/retries/{vhost}", managing, s.listRetries},
		{"GET", "office/groups", managing, s.listGroups},
		{"GET", "office/groups/{vhost}", managing, s.listGroups},
		{"GET", "office/groups/{vhost}/{queue}", managing, s.listGroups},
		{"PUT", "office/groups/{vhost}/{queue}", policies, s.putGroup}, // {queue} is the id of a group here
		{"GET", "office/letters/{vhost}/{queue}", managing, s.listLetters},
		{"GET", "office/letters/{vhost}/{queue}/{id}", managing, s.getLetter},
		{"GET", "office/letters/{vhost}/{queue}/{id}/body", managing, s.getLetterBody},
		{"GET", "office/export/{vhost}/{queue}", managing, s.exportLetters},
		{"POST", "office/import/{vhost}/{queue}", managing, s.importLetters},
		{"GET", "office/audit", monitoring, s.listAudit},
		{"GET", "office/masks/{vhost}", policies, s.getMasks},
		{"PUT", "office/masks/{vhost}", policies, s.putMasks},
		{"GET", "office/lint", managing, s.listFindings},
		{"GET", "office/lint/{vhost}", managing, s.listFindings},
		{"GET", "office/topology/{vhost}", managing, s.deadLetterMap},
		{"GET", "office/openapi.json", managing, s.getOpenAPI},
	}
}

// scope is which queues the request may show. A user with the tag monitoring sees metadata of all, others of the queues that
// they may read.
func (r *request) scope() office.Scope {
	s := office.Scope{Queue: r.queueName()}
	if _, named := r.params["vhost"]; named {
		v := r.vhost()
		s.VHost = &v
	}
	if r.may(monitoring) {
		return s
	}
	seen := map[message.VHost]bool{}
	r.eachVHost(func(v *topology.VHost) { seen[v.Name] = true })
	links := map[message.VHost]*broker.Connection{}
	s.May = func(q broker.QueueInfo) bool {
		v := q.Decl.VHost
		if !seen[v] {
			return false
		}
		if links[v] == nil {
			links[v] = r.linkTo(v)
		}
		return links[v].MayRead(q.Decl.Name)
	}
	return s
}

func (s *server) listOfficeQueues(r *request) (any, error) {
	reveal, err := r.reveals("queues", "reveal")
	if err != nil {
		return nil, err
	}
	scope := r.scope()
	scope.Reveal = reveal
	return s.Office.Queues(r.Context(), scope), nil
}

// listRetries lists what waits for a delayed retry.
func (s *server) listRetries(r *request) (any, error) {
	if _, err := r.officeQuery(); err != nil {
		return nil, err
	}
	rows, err := s.Office.Retries(r.Context(), r.scope())
	if r.Context().Err() != nil {
		return nil, nobodyWaits
	}
	return rows, err
}

// officeQuery is the query of the request; it refuses a name that is not among the allowed ones.
func (r *request) officeQuery(allowed ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query of the address cannot be read: " + err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(allowed, name) {
			if allowed == nil {
				return nil, badRequest(fmt.Sprintf("unknown parameter '%s'; there are none", name))
			}
			return nil, badRequest(fmt.Sprintf("unknown parameter '%s'; the parameters are: %s", name, strings.Join(allowed, ", ")))
		}
	}
	return q, nil
}

// officeLimit reads the limit of a page.
func officeLimit(q url.Values, most int) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badRequest(fmt.Sprintf("limit '%s' must be a number from 1 to %d", text, most))
	}
	return n, nil
}

// officeOrder reads the order of a page: one of two.
func officeOrder(q url.Values, first, second string) (isSecond bool, err error) {
	switch q.Get("order") {
	case "", first:
		return false, nil
	case second:
		return true, nil
	}
	return false, badRequest(fmt.Sprintf("order '%s' is unknown; it must be %s or %s", q.Get("order"), first, second))
}

const maxPage = 1000

func (s *server) listGroups(r *request) (any, error) {
	q, err := r.officeQuery("sort", "order", "limit", "cursor", "state", "source", "reason", "class", "text", "reveal")
	if err != nil {
		return nil, err
	}
	ask := office.GroupsRequest{
		Scope: r.scope(), Sort: q.Get("sort"), Cursor: q.Get("cursor"), State: q.Get("state"), Source: q.Get("source"), Reason: q.Get("reason"),
		Class: q.Get("class"), Text: q.Get("text"),
	}
	if ask.Ascending, err = officeOrder(q, "desc", "asc"); err != nil {
		return nil, err
	}
	if ask.Limit, err = officeLimit(q, maxPage); err != nil {
		return nil, err
	}
	if _, named := r.params["queue"]; named {
		if _, err := r.findQueue(); err != nil {
			return nil, &failure{http.StatusNotFound, "not_found", fmt.Sprintf("no queue '%s' in vhost '%s'", r.params["queue"], r.params["vhost"])}
		}
	}
	if ask.Scope.Reveal, err = r.revealed(q, "groups"); err != nil {
		return nil, err
	}
	answer, err := s.Office.Groups(r.Context(), ask)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// putGroup says something of a group: {"state": "triaged", "owner": "ann", "note": "see ticket 7"}, each optional.
func (s *server) putGroup(r *request) (any, error) {
	id, ok := letter.ParseGroupID(r.params["queue"])
	if !ok {
		return nil, &failure{http.StatusNotFound, "not_found", fmt.Sprintf("'%s' is no id of a group", r.params["queue"])}
	}
	var n office.NoteRequest
	fields := map[string]**string{"state": &n.State, "owner": &n.Owner, "note": &n.Note}
	for key, v := range r.body {
		to, known := fields[key]
		if !known {
			return nil, badRequest(fmt.Sprintf("unknown key '%s'; the keys are: state, owner, note", key))
		}
		text, ok := v.(string)
		if !ok {
			return nil, badRequest(fmt.Sprintf("%s must be text", key))
		}
		*to = &text
	}
	note, err := s.Office.SetNote(r.vhost(), id, n, r.actor())
	if err != nil {
		return nil, err
	}
	// What others have said may tell of letters that the user may not read.
	hide := func(string) string { return "" }
	if r.may(monitoring) {
		hide = s.maskFor(r.params["vhost"], false).Text
	}
	if n.Owner == nil {
		note.Owner = hide(note.Owner)
	}
	if n.Note == nil {
		note.Note = hide(note.Note)
	}
	return note, nil
}

// letterQueue is the queue in the path, which the user must be allowed to read.
func (r *request) letterQueue() (broker.QueueInfo, error) {
	return r.link().Find(r.queueName(), topology.Read)
}

// letterMissing translates why there is no letter.
func letterMissing(r *request, err error) error {
	switch {
	case errors.Is(err, office.ErrGone):
		return &failure{http.StatusGone, "gone", fmt.Sprintf("letter %s has left queue '%s' in vhost '%s'", r.params["id"], r.queueName(), r.vhost())}
	case errors.Is(err, office.ErrNever):
		return &failure{http.StatusNotFound, "not_found", fmt.Sprintf("no letter of queue '%s' in vhost '%s' has the id '%s'", r.queueName(), r.vhost(), r.params["id"])}
	}
	return err
}
