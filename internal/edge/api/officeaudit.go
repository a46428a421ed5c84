package api

import (
	"fmt"
	"strconv"

	"bartleby.mq/internal/run/office"
)

// actor is the request's user for the audit of the Dead Letter Office.
func (r *request) actor() office.Actor {
	if r.local {
		return office.Actor{Who: local, Peer: local}
	}
	return office.Actor{Who: r.user, Peer: r.RemoteAddr}
}

// defaultActs is how many entries a page has.
const defaultActs = 100

// auditAnswer is a page of the audit.
type auditAnswer struct {
	Items     []office.Entry `json:"items"`
	Next      *string        `json:"next"`
	PushedOut uint64         `json:"pushed_out"` // entries that there were, and are not kept
}

// listAudit shows who did what.
func (s *server) listAudit(r *request) (any, error) {
	query, err := r.officeQuery("vhost", "who", "what", "limit", "cursor", "reveal")
	if err != nil {
		return nil, err
	}
	q := office.ActQuery{What: query.Get("what"), Limit: defaultActs}
	for name, to := range map[string]**string{"vhost": &q.VHost, "who": &q.Who} {
		if query.Has(name) {
			*to = new(query.Get(name))
		}
	}
	if n, err := officeLimit(query, maxPage); err != nil {
		return nil, err
	} else if n > 0 {
		q.Limit = n
	}
	if text := query.Get("cursor"); text != "" {
		if q.Before, err = strconv.ParseUint(text, 10, 64); err != nil || q.Before == 0 {
			return nil, badRequest(fmt.Sprintf("cursor '%s' is none; it must be next of the page before", text))
		}
	}
	list, next, err := s.Office.Audit().List(q)
	if err != nil {
		return nil, err
	}
	reveal, err := r.revealedIn(query, "audit", "", "")
	if err != nil {
		return nil, err
	}
	for i := range list {
		if !reveal && s.Office.Audit().Outlived(&list[i]) {
			list[i] = list[i].Ended()
		} else {
			list[i] = list[i].Behind(s.maskFor(list[i].VHost, reveal))
		}
	}
	a := auditAnswer{Items: list, PushedOut: s.Office.Audit().PushedOut()}
	if a.Items == nil {
		a.Items = []office.Entry{}
	}
	if next != 0 {
		a.Next = new(strconv.FormatUint(next, 10))
	}
	return a, nil
}
