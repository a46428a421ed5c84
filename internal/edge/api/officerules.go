package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/office"
)

// ruleRoutes are the resources of the rules of the Dead Letter Office (docs/internals/office.md).
func (s *server) ruleRoutes() []route {
	if s.Office == nil {
		return nil
	}
	return []route{
		{"GET", "office/rules/{vhost}", policies, s.getRules},
		{"PUT", "office/rules/{vhost}", policies, s.putRules},
		{"POST", "office/rules/{vhost}/try", policies, s.tryRule},
		{"GET", "office/rules/{vhost}/{rule}", policies, s.getRule},
		{"PUT", "office/rules/{vhost}/{rule}", policies, s.putRule},
		{"DELETE", "office/rules/{vhost}/{rule}", policies, s.deleteRule},
		{"POST", "office/rules/{vhost}/{rule}/on", policies, s.switchRule(true)},
		{"POST", "office/rules/{vhost}/{rule}/off", policies, s.switchRule(false)},
	}
}

// sight is what the user may know of what rules of a virtual host do.
func (r *request) sight(vhost message.VHost) *office.Sight {
	if r.sights[vhost] == nil {
		if r.sights == nil {
			r.sights = map[message.VHost]*office.Sight{}
		}
		r.sights[vhost] = r.s.Office.Rules.SightOf(r.linkTo(vhost))
	}
	return r.sights[vhost]
}

// revealsRule says whether a rule may see what masks hide, which needs the tag reveal and stands in the audit.
func (r *request) revealsRule() (bool, error) {
	query, err := r.officeQuery("reveal")
	if err != nil {
		return false, err
	}
	return r.revealedIn(query, "rules", r.vhost(), r.params["rule"])
}

// readRule reads a rule as GET shows it: what is no part of it is passed over.
func readRule(text []byte) (rule office.Rule, err error) {
	var body map[string]json.RawMessage
	if err := json.Unmarshal(text, &body); err != nil {
		return rule, badRequest("a rule must be a JSON object")
	}
	for _, key := range office.RuleFacts {
		delete(body, key)
	}
	rest, err := json.Marshal(body)
	if err != nil {
		return rule, err
	}
	d := json.NewDecoder(bytes.NewReader(rest))
	d.DisallowUnknownFields()
	if err := d.Decode(&rule); err != nil {
		return rule, badRequest("rule: " + strings.TrimPrefix(err.Error(), "json: "))
	}
	return rule, nil
}

func (s *server) getRules(r *request) (any, error) {
	if err := s.mustVHost(r.vhost()); err != nil {
		return nil, err
	}
	reveal, err := r.revealsRule()
	if err != nil {
		return nil, err
	}
	b := s.Office.Rules.Book(r.vhost()).SeenBy(r.sight(r.vhost())).Behind(s.maskFor(string(r.vhost()), reveal))
	return withTag{b.Revision, b}, nil
}

// isRevision is what a change says of the revision that it changes: in the body of a PUT of all, as GET shows it, or as If-Match. It is nil if it says nothing.
func (r *request) isRevision(inBody *string) func(string) bool {
	header := strings.Join(r.Header.Values("If-Match"), ",")
	if inBody == nil && header == "" {
		return nil
	}
	return func(present string) bool {
		if inBody != nil && *inBody != present {
			return false
		}
		if header == "" {
			return true
		}
		for tag := range strings.SplitSeq(header, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || tag == `"`+present+`"` {
				return true
			}
		}
		return false
	}
}

// putRules sets all rules of a virtual host, in their order, and the threshold; what is not in the body stays as it is. It is refused if they
// are not those that the request names (isRevision).
func (s *server) putRules(r *request) (any, error) {
	var body struct {
		Rules     []json.RawMessage `json:"rules"`
		Threshold *int              `json:"threshold"`
		Revision  *string           `json:"revision"`
	}
	d := json.NewDecoder(bytes.NewReader(r.raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		return nil, badRequest("the body are no rules: " + strings.TrimPrefix(err.Error(), "json: "))
	}
	var rules []office.Rule
	if body.Rules != nil {
		rules = []office.Rule{}
	}
	for _, text := range body.Rules {
		rule, err := readRule(text)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	reveal, err := r.revealsRule()
	if err != nil {
		return nil, err
	}
	b, err := s.Office.Rules.PutIf(r.isRevision(body.Revision), r.link(), r.actor(), rules, body.Threshold, reveal)
	return r.ruled(b, reveal, err)
}

// ruled is what a change of rules answers, and what the audit log says of it.
func (r *request) ruled(b office.RuleBook, reveal bool, err error) (any, error) {
	if err != nil {
		return nil, asJobFailure(err)
	}
	names := make([]string, len(b.Rules))
	for i := range b.Rules {
		names[i] = b.Rules[i].Name + " (" + b.Rules[i].State + ")"
	}
	r.did = []any{slog.Group("rules", "vhost", string(r.vhost()), "rules", strings.Join(names, ", "), "threshold", b.Threshold)}
	return withTag{b.Revision, b.SeenBy(r.sight(r.vhost())).Behind(r.s.maskFor(string(r.vhost()), reveal))}, nil
}

func (s *server) getRule(r *request) (any, error) {
	reveal, err := r.revealsRule()
	if err != nil {
		return nil, err
	}
	b := s.Office.Rules.Book(r.vhost()).SeenBy(r.sight(r.vhost())).Behind(s.maskFor(string(r.vhost()), reveal))
	for _, rule := range b.Rules {
		if rule.Name == r.params["rule"] {
			return withTag{b.Revision, rule}, nil
		}
	}
	return nil, asJobFailure(&office.Error{Kind: office.NotFound, Text: fmt.Sprintf("there is no rule '%s' in virtual host '%s'", r.params["rule"], r.vhost())})
}

// putRule sets one rule: in place of the one of its name, or as the last.
func (s *server) putRule(r *request) (any, error) {
	rule, err := readRule(r.raw)
	if err != nil {
		return nil, err
	}
	if rule.Name == "" {
		rule.Name = r.params["rule"]
	}
	if rule.Name != r.params["rule"] {
		return nil, badRequest(fmt.Sprintf("name '%s' is not that of the address, '%s'", rule.Name, r.params["rule"]))
	}
	reveal, err := r.revealsRule()
	if err != nil {
		return nil, err
	}
	b, err := s.Office.Rules.PutRuleIf(r.isRevision(nil), r.link(), r.actor(), rule, reveal)
	return r.ruled(b, reveal, err)
}

func (s *server) deleteRule(r *request) (any, error) {
	b, err := s.Office.Rules.RemoveIf(r.isRevision(nil), r.link(), r.actor(), r.params["rule"])
	return r.ruled(b, false, err)
}

func (s *server) switchRule(on bool) func(*request) (any, error) {
	return func(r *request) (any, error) {
		reveal, err := r.revealsRule()
		if err != nil {
			return nil, err
		}
		b, err := s.Office.Rules.SwitchIf(r.isRevision(nil), r.link(), r.actor(), r.params["rule"], on, reveal)
		return r.ruled(b, reveal, err)
	}
}

// tryRule says what a rule would do with the letters there are.
func (s *server) tryRule(r *request) (any, error) {
	rule, err := readRule(r.raw)
	if err != nil {
		return nil, err
	}
	if err := s.mustVHost(r.vhost()); err != nil {
		return nil, err
	}
	reveal, err := r.revealsRule()
	if err != nil {
		return nil, err
	}
	t, err := s.Office.Rules.Try(r.Context(), r.link(), rule, reveal)
	if err != nil {
		return nil, asJobFailure(err)
	}
	return t, nil
}
