package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/office"
)

// getMasks shows what is hidden in a virtual host.
func (s *server) getMasks(r *request) (any, error) {
	if _, err := r.officeQuery(); err != nil {
		return nil, err
	}
	return s.Office.Masks().Mask(r.params["vhost"]).Rules(), nil
}

// putMasks sets it: {"headers": ["authorization"], "paths": ["$..iban"], "patterns": ["[0-9]{16}"]}, each optional.
func (s *server) putMasks(r *request) (any, error) {
	var rules letter.MaskRules
	fields := map[string]*[]string{"headers": &rules.Headers, "paths": &rules.Paths, "patterns": &rules.Patterns}
	for key, v := range r.body {
		to, known := fields[key]
		if !known {
			return nil, badRequest(fmt.Sprintf("unknown key '%s'; the keys are: headers, paths, patterns", key))
		}
		list, ok := v.([]any)
		if !ok {
			return nil, badRequest(key + " must be a list of texts")
		}
		for _, e := range list {
			text, ok := e.(string)
			if !ok {
				return nil, badRequest(key + " must be a list of texts")
			}
			*to = append(*to, text)
		}
	}
	set, err := s.Office.SetMask(r.vhost(), rules, r.actor())
	if err != nil {
		return nil, err
	}
	return set, nil
}

// maskFor is the mask of a virtual host; nil if it has none, or if the request reveals.
func (s *server) maskFor(vhost string, reveal bool) *letter.Mask {
	if reveal || s.Office == nil {
		return nil
	}
	return s.Office.Masks().Mask(vhost)
}

// reveals is officeQuery and revealed.
func (r *request) reveals(what string, allowed ...string) (bool, error) {
	query, err := r.officeQuery(allowed...)
	if err != nil {
		return false, err
	}
	return r.revealed(query, what)
}

// revealed says whether the request asks to see what masks hide, which needs the tag reveal and stands in the audit.
func (r *request) revealed(query url.Values, what string) (bool, error) {
	object := r.params["queue"]
	if id := r.params["id"]; id != "" {
		object += " " + id
	}
	return r.revealedIn(query, what, r.vhost(), object)
}

// revealedIn is revealed for an object of a virtual host; "" is all.
func (r *request) revealedIn(query url.Values, what string, vhost message.VHost, object string) (bool, error) {
	switch text := query.Get("reveal"); {
	case text == "" || text == "false":
		return false, nil
	case text != "true":
		return false, badRequest(fmt.Sprintf("reveal '%s' must be true or false", text))
	case !r.local && !slices.Contains(r.tags, auth.Reveal):
		return false, &failure{http.StatusForbidden, "forbidden", "reveal=true (--reveal) needs the tag reveal, which an administrator gives a user besides the other tags (set_user_tags)"}
	}
	if r.s.Office != nil {
		r.s.Office.Record(office.Act{Actor: r.actor(), What: what + ".revealed", VHost: string(vhost), Object: object})
	}
	return true, nil
}

// wouldTell is the refusal of a filter that would tell what masks hide.
func wouldTell(filter, vhost string) error {
	return &failure{http.StatusForbidden, "forbidden", fmt.Sprintf("filter '%s' would tell what the masks of vhost '%s' hide; it needs reveal=true (--reveal), and the tag reveal", filter, vhost)}
}
