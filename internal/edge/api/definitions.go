package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/definitions"
	"bartleby.mq/internal/run/office"
)

// clusterTags is the global parameter that a configuration of RabbitMQ sets.
const clusterTags = "cluster_tags"

// exportDefinitions exports all definitions (BR-16.1, BR-16.2).
func (s *server) exportDefinitions(*request) (any, error) {
	doc := s.definitionsHead()
	doc["rabbitmq_definition_format"] = "cluster"
	doc["original_cluster_name"] = s.clusterName()
	doc["explanation"] = "Definitions of cluster '" + s.clusterName() + "'"
	users, vhosts := []any{}, []any{}
	permissions, topicPermissions, globals := []any{}, []any{}, []any{}
	all := newObjectsOfVHosts()
	var rules []*topology.RuleSet
	var taken []*topology.Snapshot
	var accounts []*auth.User
	var granted []auth.Permission
	var topics []auth.TopicPermission
	tagged := false
	s.b.Read(func(state *topology.State, u *auth.Users) {
		accounts, granted, topics = u.List(), u.Permissions(), u.TopicPermissions()
		for _, p := range state.GlobalParameters() {
			if p.Name == broker.ClusterIDParameter {
				continue // not for another cluster
			}
			tagged = tagged || p.Name == clusterTags
			globals = append(globals, map[string]any{"name": p.Name, "value": p.Value})
		}
		for _, v := range state.VHosts() {
			vhosts = append(vhosts, map[string]any{"name": string(v.Name), "limits": v.Limits(), "metadata": exportMetadata(state, v)})
			rules = append(rules, v.RuleSet())
			taken = append(taken, v.Snapshot())
		}
	})
	if !tagged {
		globals = append(globals, map[string]any{"name": clusterTags, "value": []any{}}) // as RabbitMQ's exports
	}
	for _, user := range auth.SortUsers(accounts) {
		users = append(users, showUser(user))
	}
	for _, p := range auth.SortPermissions(granted) {
		permissions = append(permissions, showPermission(p))
	}
	for _, p := range auth.SortTopicPermissions(topics) {
		topicPermissions = append(topicPermissions, showTopicPermission(p))
	}
	for _, r := range rules {
		all.addRules(r)
	}
	for _, t := range taken {
		all.add(t, !s.b.Strict)
	}
	doc["users"], doc["vhosts"], doc["permissions"], doc["topic_permissions"] = users, vhosts, permissions, topicPermissions
	doc["global_parameters"] = globals
	all.put(doc)
	return doc, nil
}

// exportVHostDefinitions exports one virtual host, whose objects do not name it (BR-16.3).
func (s *server) exportVHostDefinitions(r *request) (any, error) {
	doc := s.definitionsHead()
	doc["rabbitmq_definition_format"] = "single_virtual_host"
	doc["original_vhost_name"] = string(r.vhost())
	doc["explanation"] = "Definitions of virtual host '" + string(r.vhost()) + "'"
	all := newObjectsOfVHosts()
	var rules *topology.RuleSet
	var taken *topology.Snapshot
	s.b.Read(func(state *topology.State, _ *auth.Users) {
		v, ok := state.VHost(r.vhost())
		if !ok {
			return
		}
		doc["description"], doc["limits"], doc["metadata"] = v.Metadata.Description, v.Limits(), exportMetadata(state, v)
		rules, taken = v.RuleSet(), v.Snapshot()
	})
	if taken == nil && s.b.Strict {
		return nil, badRequest("vhost_not_found")
	}
	if taken == nil {
		return nil, notFound
	}
	all.addRules(rules)
	all.add(taken, !s.b.Strict)
	all.forgetVHost()
	all.put(doc)
	return doc, nil
}

func (s *server) definitionsHead() map[string]any {
	return map[string]any{
		"rabbit_version": s.Version, "rabbitmq_version": s.Version, "product_name": s.Product, "product_version": s.ProductVersion,
	}
}

func exportMetadata(state *topology.State, v *topology.VHost) map[string]any {
	m := map[string]any{
		"description": v.Metadata.Description, "tags": tagList(v.Metadata.Tags), "default_queue_type": string(state.DefaultQueueType(v)),
	}
	if v.Metadata.Protected {
		m["protected_from_deletion"] = true
	}
	if d := v.Metadata.DefaultDeadLetter; d != "" {
		m["default_dead_letter"] = d
	}
	if v.Metadata.Lenient {
		m["lenient_declarations"] = true
	}
	if p := v.Profile(); p != deadletter.RabbitMQ || state.DefaultProfile() != p { // RabbitMQ's own have none
		m["profile"] = string(p)
	}
	return m
}

// objectsOfVHosts are the objects in virtual hosts, by the key of the document.
type objectsOfVHosts map[string][]map[string]any

func newObjectsOfVHosts() objectsOfVHosts {
	return objectsOfVHosts{"parameters": {}, "policies": {}, "queues": {}, "exchanges": {}, "bindings": {}}
}

// addRules collects the parameters and policies of a virtual host.
func (o objectsOfVHosts) addRules(v *topology.RuleSet) {
	o["parameters"] = append(o["parameters"], parametersOf(v, "")...)
	for _, p := range v.Policies(false) {
		o["policies"] = append(o["policies"], showPolicy(p))
	}
}

// add collects the queues, exchanges and bindings of a virtual host. It skips objects
// that the broker or a connection makes again: predeclared exchanges, bindings of the
// default exchange, exclusive and transient queues (BR-16.2).
func (o objectsOfVHosts) add(v *topology.Snapshot, withInternal bool) {
	for _, q := range v.Queues() {
		if !exported(q) {
			continue
		}
		o["queues"] = append(o["queues"], map[string]any{
			"name": string(q.Name), "vhost": string(q.VHost), "durable": q.Durable, "auto_delete": q.AutoDelete, "type": string(q.Type),
			"arguments": topology.ArgumentsJSON(v.Arguments(q)),
		})
	}
	for _, x := range v.Exchanges() {
		if x.BelongsToNode() || x.Internal && !withInternal {
			continue
		}
		object := map[string]any{
			"name": string(x.Name), "vhost": string(x.VHost), "type": string(x.Type), "durable": x.Durable, "auto_delete": x.AutoDelete,
			"arguments": topology.ArgumentsJSON(x.Arguments),
		}
		if x.Internal {
			object["internal"] = true
		}
		o["exchanges"] = append(o["exchanges"], object)
	}
	for _, b := range v.Bindings() {
		if b.SourceName() == "" || b.Queue != nil && !exported(b.Queue) {
			continue
		}
		object := showBinding(b)
		delete(object, "properties_key")
		o["bindings"] = append(o["bindings"], object)
	}
}

func exported(q *topology.Queue) bool { return !q.Exclusive }

func (o objectsOfVHosts) forgetVHost() {
	for _, list := range o {
		for _, object := range list {
			delete(object, "vhost")
		}
	}
}

func (o objectsOfVHosts) put(doc map[string]any) {
	for key, list := range o {
		doc[key] = list
	}
}

// definitionsText is the document in the body, or in the file of a form (BR-16.5).
func (r *request) definitionsText() ([]byte, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		if len(r.raw) == 0 && r.s.b.Strict {
			return []byte("{}"), nil
		}
		return r.raw, nil
	}
	parts := multipart.NewReader(bytes.NewReader(r.raw), params["boundary"])
	for {
		part, err := parts.NextPart()
		if err != nil {
			return nil, badRequest("the form contains no file")
		}
		if part.FormName() == "file" {
			text, err := io.ReadAll(part)
			if err != nil {
				return nil, badRequest("cannot read the file in the form")
			}
			return text, nil
		}
	}
}

func (s *server) importDefinitions(r *request) (any, error) { return s.importOrCheck(r, "") }

func (s *server) importVHostDefinitions(r *request) (any, error) {
	if err := s.mustVHost(r.vhost()); err != nil {
		return nil, err
	}
	return s.importOrCheck(r, r.vhost())
}

// hasOperatorPolicy says whether definitions have an operator policy.
func hasOperatorPolicy(text []byte) bool {
	v, _ := topology.ParseJSON(text) // the import itself says what is wrong with it
	doc, _ := v.(map[string]any)
	list, _ := doc["parameters"].([]any)
	return slices.ContainsFunc(list, func(v any) bool {
		p, _ := v.(map[string]any)
		return p["component"] == definitions.OperatorPolicyComponent
	})
}

// importOrCheck imports, or says with dry_run what is in the way.
func (s *server) importOrCheck(r *request, vhost message.VHost) (any, error) {
	if !r.flag("dry_run") {
		return s.importFrom(r, vhost)
	}
	text, err := r.definitionsText()
	if err != nil {
		return nil, err
	}
	doc, err := s.exportDefinitions(r)
	if err != nil {
		return nil, err
	}
	present, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	if !s.checks.Begin(r.user, r.Context().Done(), nil) {
		return nil, nobodyWaits
	}
	obstacles, warnings, err := definitions.Check(r.Context(), s.b.Options, present, text, vhost, s.b.HandlesParameters)
	s.checks.End()
	if errors.Is(err, definitions.ErrEnded) {
		return nil, nobodyWaits
	}
	if err != nil {
		return nil, err
	}
	return map[string]any{"obstacles": append([]definitions.Obstacle{}, obstacles...), "warnings": append([]string{}, warnings...)}, nil
}

// sumOf is the checksum of definitions for a virtual host; "": for all.
func sumOf(vhost message.VHost, text []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	_, _ = h.Write([]byte(vhost + "\x00")) // a hash takes everything
	_, _ = h.Write(text)
	h.Sum(sum[:0])
	return sum
}

// importFrom imports. It answers only what was asked for: RabbitMQ says nothing.
func (s *server) importFrom(r *request, vhost message.VHost) (any, error) {
	text, err := r.definitionsText()
	if err != nil {
		return nil, err
	}
	if r.keepsOperatorPolicies() && hasOperatorPolicy(text) {
		return nil, operatorPoliciesStay
	}
	sum := sumOf(vhost, text)
	if last := s.imported.Load(); r.flag("skip_if_unchanged") && last != nil && *last == sum {
		return map[string]any{"unchanged": true}, nil
	}
	warnings, err := definitions.ImportFor(r.Context(), s.b, text, vhost, r.user, r.identity, definitions.How{SkipUnsupported: r.flag("skip_unsupported")})
	for _, w := range warnings {
		s.Logger.Warn("definitions imported with a warning", "warning", w)
	}
	if s.Office != nil { // also of one that failed: what went before stays
		act := office.Act{Actor: r.actor(), What: "definitions.imported", VHost: string(vhost), Object: string(vhost)}
		if err != nil {
			act.Detail = cutDetail("it ended early: " + err.Error())
		}
		s.Office.Record(act)
	}
	if errors.Is(err, definitions.ErrEnded) {
		return nil, nobodyWaits
	}
	if err != nil {
		return nil, err
	}
	s.imported.Store(&sum)
	if r.flag("skip_unsupported") && len(warnings) > 0 {
		return map[string]any{"warnings": warnings}, nil
	}
	return nil, nil
}
