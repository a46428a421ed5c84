package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/office"
)

// Limits of a page of drops.
const (
	defaultDrops = 100
	maxDrops     = 1000
)

// dropsAnswer is a part of the ledger of drops as the API shows it.
type dropsAnswer struct {
	Items   []office.DropEntry `json:"items"`
	Total   int                `json:"total"`
	Dropped uint64             `json:"dropped"`
	Next    *string            `json:"next"`
	Hours   []office.DropHour  `json:"hours"`
}

// listDrops shows the messages that the node has let go of: ours.
func (s *server) listDrops(r *request) (any, error) {
	if s.Office == nil {
		return nil, notFound
	}
	query := r.URL.Query()
	for key := range query {
		switch key {
		case "queue", "why", "reason", "limit", "cursor", "reveal":
		default:
			return nil, badRequest(fmt.Sprintf("unknown parameter '%s'; the parameters are: queue, why, reason, limit, cursor, reveal", key))
		}
	}
	q := office.DropQuery{Queue: query.Get("queue"), Why: query.Get("why"), Reason: query.Get("reason"), Limit: defaultDrops}
	if text := query.Get("limit"); text != "" {
		if _, err := fmt.Sscanf(text+"\n", "%d\n", &q.Limit); err != nil || q.Limit < 1 || q.Limit > maxDrops {
			return nil, badRequest(fmt.Sprintf("limit must be a number from 1 to %d", maxDrops))
		}
	}
	if text := query.Get("cursor"); text != "" {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(raw, &q.Before) != nil {
			return nil, badRequest("cursor must be the next of an answer")
		}
	}
	if name, named := r.params["vhost"]; named {
		q.VHost = &name
	}
	q.VHosts = r.namesVHost()
	list, err := s.Office.Drops.List(r.Context(), q)
	switch {
	case r.Context().Err() != nil:
		return nil, nobodyWaits
	case err != nil:
		return nil, err
	}
	reveal, err := r.revealedIn(query, "drops", r.vhost(), query.Get("queue"))
	if err != nil {
		return nil, err
	}
	r.hideExamples(list.Entries)
	for i := range list.Entries {
		list.Entries[i] = list.Entries[i].Behind(s.maskFor(list.Entries[i].VHost, reveal))
	}
	answer := dropsAnswer{Items: list.Entries, Total: list.Total, Dropped: list.Dropped, Hours: list.Hours}
	if answer.Items == nil {
		answer.Items = []office.DropEntry{}
	}
	if answer.Hours == nil {
		answer.Hours = []office.DropHour{}
	}
	if list.Next != (office.DropPlace{}) {
		raw, err := json.Marshal(list.Next)
		if err != nil {
			return nil, err
		}
		next := base64.RawURLEncoding.EncodeToString(raw)
		answer.Next = &next
	}
	return answer, nil
}

// hideExamples takes out what entries say of messages of queues that the user may not read, unless the user sees metadata of all.
func (r *request) hideExamples(entries []office.DropEntry) {
	if r.may(monitoring) {
		return
	}
	type name struct{ vhost, queue string }
	reads := map[name]bool{}
	for i := range entries {
		e := &entries[i]
		if !e.Example || e.Queue == "" {
			continue
		}
		n := name{e.VHost, e.Queue}
		if _, asked := reads[n]; !asked {
			reads[n] = r.linkTo(message.VHost(n.vhost)).MayRead(message.QueueName(n.queue))
		}
		if !reads[n] {
			e.Exchange, e.Keys, e.MessageID, e.Type, e.Bytes, e.Example = "", nil, "", "", 0, false
		}
	}
}

// namesVHost returns which virtual hosts an answer may show: the one in the path, or all that the user may see. What is
// kept of a virtual host that is gone is for those who may see all.
func (r *request) namesVHost() func(string) bool {
	if name, named := r.params["vhost"]; named {
		return func(vhost string) bool { return vhost == name }
	}
	if r.may(monitoring) {
		return func(string) bool { return true }
	}
	visible := map[string]bool{}
	r.s.b.Read(func(s *topology.State, u *auth.Users) {
		for _, v := range s.VHosts() {
			if r.visible.Sees(u, v.Name) {
				visible[string(v.Name)] = true
			}
		}
	})
	return func(vhost string) bool { return visible[vhost] }
}
