// Package definitions imports definitions files. It reads the JSON forms in which RabbitMQ writes
// users, virtual hosts, policies and so on, and applies them to a broker in the order of their
// dependencies. The server calls it at a start, and the management API for an import; the API
// also reads the bodies of other requests with its functions.
//
// It owns no state, and neither finds nor fetches files.
package definitions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// internalUser is RabbitMQ's name of the user who imports the files in the configuration.
const internalUser = "rmq-internal"

// ErrEnded means that an import was stopped because its context ended.
var ErrEnded = errors.New("the import was stopped before it was complete")

// Import imports a definitions file (BR-16.4): it adds missing objects, replaces users,
// permissions, policies and parameters, and leaves existing queues and exchanges as they are.
// The first refusal stops it; earlier objects stay. Parameters with an effect, such as
// shovels, come last: everything that they refer to exists then, and their owner's
// permissions may cause a refusal. warnings lists objects that were skipped on purpose.
//
// Import is for a start, which clients must not be able to prevent. So it skips, with a
// warning, a queue beyond the limit of its virtual host, and a binding that the existing
// exchange or queue does not accept.
//
// An error is a *MalformedError, or the broker's.
func Import(b *broker.Broker, text []byte, how How) (warnings []string, err error) {
	im := &importer{b: b.By(internalUser), user: internalUser, starts: true, how: how}
	err = im.all(context.Background(), text)
	return im.warnings, err
}

// importer is one import.
type importer struct {
	b        broker.Admin
	user     string
	vhost    message.VHost // of all objects; "" if each names its own
	starts   bool          // the node does: see Import
	warnings []string
	how      How

	collect   bool                        // see Check
	unchecked func(component string) bool // of parameters, in Check
	obstacles []Obstacle                  // with collect
	out       map[end]bool                // queues and exchanges that were refused
}

// ImportFor is Import for a user of the API, into one virtual host; "" means that each object names its own. by is the
// identity that owns the parameters and creates virtual hosts, nil for the node's operator, who needs no permissions. When
// ctx ends, the import stops between two objects with ErrEnded.
func ImportFor(ctx context.Context, b *broker.Broker, text []byte, vhost message.VHost, user string, by *broker.Identity, how How) ([]string, error) {
	im := &importer{b: b.By(user).As(by), user: user, vhost: vhost, how: how}
	err := im.all(ctx, text)
	return im.warnings, err
}

// all imports all that is in a file.
func (im *importer) all(ctx context.Context, text []byte) error {
	v, err := topology.ParseJSON(text)
	if err != nil {
		return NotJSON(err, "failed_to_parse_json")
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return malformed("failed_to_parse_json") // as RabbitMQ
	}
	type step struct {
		key  string
		each func(map[string]any) error
	}
	steps := []step{
		{"exchanges", im.exchange}, {"policies", im.policy}, {"parameters", im.parameter}, {"queues", im.queue}, {"bindings", im.binding},
		{"parameters", im.handledParameter},
	}
	if im.vhost == "" {
		steps = []step{
			{"users", im.importUser}, {"vhosts", im.importVHost}, {"permissions", im.permission}, {"exchanges", im.exchange},
			{"topic_permissions", im.topicPermission}, {"global_parameters", im.globalParameter},
			{"policies", im.policy}, {"parameters", im.parameter}, {"queues", im.queue}, {"bindings", im.binding},
			{"parameters", im.handledParameter},
		}
	}
	im.warnOfSections(doc)
	for _, s := range steps {
		list, ok := doc[s.key].([]any)
		if !ok && doc[s.key] != nil {
			return malformed(s.key + " must be a list")
		}
		for _, v := range list {
			object, ok := v.(map[string]any)
			if !ok {
				return malformed(s.key + " must be a list of objects")
			}
			if ctx.Err() != nil {
				return ErrEnded
			}
			if s.key == "bindings" && im.leadsOut(object) {
				continue
			}
			if err := s.each(object); err != nil {
				if err := im.refused(s.key, object, err); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// warnOfSections names the lists of a file that are none of its sections, such as one with a slip in its name: nothing of them is imported.
func (im *importer) warnOfSections(doc map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		_, list := doc[key].([]any)
		if _, known := singular[key]; list && !known {
			im.warn("the section %q is none of definitions: nothing of it is imported", key)
		}
	}
}

func (im *importer) warn(format string, args ...any) {
	im.warnings = append(im.warnings, fmt.Sprintf(format, args...))
}

// name reads a mandatory string.
func (im *importer) name(o map[string]any, key string) (string, error) {
	text, ok := o[key].(string)
	if !ok {
		return "", malformed(fmt.Sprintf("[{key_missing,%s}]", key))
	}
	return text, nil
}

// textOf is a string of an object and its destination.
type textOf struct {
	key string
	to  *string
}

// names reads mandatory strings.
func (im *importer) names(o map[string]any, texts ...textOf) (err error) {
	for _, t := range texts {
		if *t.to, err = im.name(o, t.key); err != nil {
			return err
		}
	}
	return nil
}

// in returns the virtual host of an object, which must exist.
func (im *importer) in(o map[string]any) (message.VHost, error) {
	v := im.vhost
	if v == "" {
		name, err := im.name(o, "vhost")
		if err != nil {
			return "", err
		}
		v = message.VHost(name)
	}
	exists := false
	im.b.Read(func(s *topology.State, _ *auth.Users) { _, exists = s.VHost(v) })
	if !exists {
		return "", malformed(fmt.Sprintf("Please create virtual host %q prior to importing definitions.", v))
	}
	return v, nil
}

func (im *importer) importUser(o map[string]any) error {
	name, err := im.name(o, "name")
	if err != nil {
		return err
	}
	tags, err := Tags(o["tags"])
	if err != nil {
		return err
	}
	hash, err := Password(im.b.Broker, o)
	if err != nil {
		return err
	}
	if _, err := im.b.Do(declare.PutUser{Name: name, Password: hash, Tags: tags}); err != nil {
		return err
	}
	limits, err := Object(o["limits"], "limits")
	if err != nil {
		return err
	}
	if len(limits) == 0 {
		return nil
	}
	_, err = im.b.Do(declare.SetUserLimits{Name: name, Limits: Limits[auth.Limit](limits)})
	return err
}

func (im *importer) importVHost(o map[string]any) error {
	name, err := im.name(o, "name")
	if err != nil {
		return err
	}
	about, err := Object(o["metadata"], "metadata")
	if err != nil {
		return err
	}
	for _, key := range []string{"description", "tags", "default_queue_type", "protected_from_deletion", "profile", "default_dead_letter", "lenient_declarations"} { // as older exports have them
		if _, ok := about[key]; !ok && o[key] != nil {
			about[key] = o[key]
		}
	}
	var m topology.Metadata
	m.Description, _ = about["description"].(string)
	if m.Tags, err = Tags(about["tags"]); err != nil {
		return err
	}
	if t, _ := about["default_queue_type"].(string); t != "undefined" {
		m.DefaultQueueType = topology.QueueType(t)
	}
	profile, _ := about["profile"].(string)
	m.Profile = deadletter.Profile(profile)
	if err := Flags(about, Flag{"protected_from_deletion", &m.Protected}, Flag{"lenient_declarations", &m.Lenient}); err != nil {
		return err
	}
	// What no export has stays, and so does protection that is not named, as RabbitMQ keeps it.
	change := declare.All(m)
	change.Tracing = nil
	if _, says := about["protected_from_deletion"]; !says {
		change.Protected = nil
	}
	if _, says := about["lenient_declarations"]; !says {
		change.Lenient = nil
	}
	if about["default_dead_letter"] == nil {
		change.DefaultDeadLetter = nil
	} else if d, ok := about["default_dead_letter"].(string); ok {
		change.DefaultDeadLetter = &d
	} else {
		return topology.Refuse(topology.Invalid, "default_dead_letter of vhost '%s' should be a string", name)
	}
	if _, err := im.b.Do(declare.PutVHost{Name: message.VHost(name), Change: change}); err != nil {
		return err
	}
	limits, err := Object(o["limits"], "limits")
	if err != nil {
		return err
	}
	if len(limits) == 0 {
		return nil
	}
	_, err = im.b.Do(declare.SetVHostLimits{Name: message.VHost(name), Limits: Limits[topology.Limit](limits)})
	return err
}

func (im *importer) permission(o map[string]any) error {
	v, err := im.in(o)
	if err != nil {
		return err
	}
	p := auth.Permission{VHost: v}
	if err := im.names(o, textOf{"user", &p.User}, textOf{"configure", &p.Configure}, textOf{"write", &p.Write}, textOf{"read", &p.Read}); err != nil {
		return err
	}
	im.warnUnreadable("permissions", o, v, "configure", "write", "read")
	_, err = im.b.Do(declare.PutPermission{Permission: p})
	return err
}

func (im *importer) topicPermission(o map[string]any) error {
	v, err := im.in(o)
	if err != nil {
		return err
	}
	p := auth.TopicPermission{VHost: v}
	exchange := ""
	if err := im.names(o, textOf{"user", &p.User}, textOf{"exchange", &exchange}, textOf{"write", &p.Write}, textOf{"read", &p.Read}); err != nil {
		return err
	}
	p.Exchange = message.ExchangeName(exchange)
	im.warnUnreadable("topic_permissions", o, v, "write", "read")
	_, err = im.b.Do(declare.PutTopicPermission{TopicPermission: p})
	return err
}

func (im *importer) exchange(o map[string]any) error {
	v, err := im.in(o)
	if err != nil {
		return err
	}
	name, err := im.name(o, "name")
	if err != nil {
		return err
	}
	if im.has(v, func(v *topology.VHost) bool { _, ok := v.Exchange(message.ExchangeName(name)); return ok }) {
		return nil
	}
	if strings.HasPrefix(name, "amq.") {
		im.warn("exchange '%s' in vhost '%s' is left out: the name is reserved", name, v)
		return nil
	}
	kind, err := im.name(o, "type")
	if err != nil {
		return err
	}
	d := topology.ExchangeDecl{Name: message.ExchangeName(name), Type: routing.Kind(kind)}
	if err := Flags(o, Flag{"durable", &d.Durable}, Flag{"auto_delete", &d.AutoDelete}, Flag{"internal", &d.Internal}); err != nil {
		return err
	}
	arguments, err := Object(o["arguments"], "arguments")
	if err != nil {
		return err
	}
	if d.Arguments, err = topology.ParseArguments(arguments); err != nil {
		return malformed(err.Error())
	}
	_, err = im.b.AsOperator(im.user, v).DeclareExchange(d)
	return declared(err)
}

func (im *importer) has(name message.VHost, test func(*topology.VHost) bool) (has bool) {
	im.b.Read(func(s *topology.State, _ *auth.Users) {
		if v, ok := s.VHost(name); ok {
			has = test(v)
		}
	})
	return has
}

// declared gives the refusal of a declaration the form that imports have (BR-16.5).
func declared(err error) error {
	if refusal, ok := err.(*topology.Error); ok && refusal.Kind == topology.PreconditionFailed {
		return malformed("precondition_failed: " + refusal.Text)
	}
	return err
}

func (im *importer) queue(o map[string]any) error {
	v, err := im.in(o)
	if err != nil {
		return err
	}
	name, err := im.name(o, "name")
	if err != nil {
		return err
	}
	if im.has(v, func(v *topology.VHost) bool { _, ok := v.Queue(message.QueueName(name)); return ok }) {
		return nil
	}
	// Exports contain server-named queues that are not exclusive.
	d := topology.QueueDecl{Name: message.QueueName(name), ServerNamed: strings.HasPrefix(name, "amq.")}
	if err := Flags(o, Flag{"durable", &d.Durable}, Flag{"auto_delete", &d.AutoDelete}); err != nil {
		return err
	}
	arguments, err := Object(o["arguments"], "arguments")
	if err != nil {
		return err
	}
	if kind, ok := o["type"].(string); ok && arguments["x-queue-type"] == nil {
		arguments["x-queue-type"] = kind
	}
	if d.Arguments, err = topology.ParseArguments(arguments); err != nil {
		return malformed(err.Error())
	}
	_, err = im.b.AsOperator(im.user, v).DeclareQueue(d)
	if refusal, ok := err.(*topology.Error); ok && refusal.Kind == topology.AccessRefused && strings.HasPrefix(name, topology.OwnPrefix) {
		im.warn("queue '%s' in vhost '%s' is left out: the name is reserved, and the broker makes such a queue otherwise", name, v)
		return nil
	}
	if refusal, ok := err.(*topology.Error); ok && refusal.Fault == topology.TooMany && im.starts {
		im.warn("queue '%s' in vhost '%s' is left out: %s", name, v, refusal.Text)
		return nil
	}
	return declared(err)
}

func (im *importer) binding(o map[string]any) error {
	v, err := im.in(o)
	if err != nil {
		return err
	}
	var source, destination, kind, key string
	err = im.names(o, textOf{"source", &source}, textOf{"destination", &destination}, textOf{"destination_type", &kind}, textOf{"routing_key", &key})
	if err != nil {
		return err
	}
	if source == "" {
		return nil // by itself
	}
	if strings.HasPrefix(source, "amq.") && !im.has(v, func(v *topology.VHost) bool { _, ok := v.Exchange(message.ExchangeName(source)); return ok }) {
		im.warn("a binding of exchange '%s' in vhost '%s' is left out: there is none of that name", source, v)
		return nil
	}
	arguments, err := Object(o["arguments"], "arguments")
	if err != nil {
		return err
	}
	d := topology.BindingDecl{
		Source: message.ExchangeName(source), Destination: destination, DestinationKind: topology.QueueResource, Key: message.RoutingKey(key),
	}
	if kind == "exchange" {
		d.DestinationKind = topology.ExchangeResource
	}
	if d.Arguments, err = topology.ParseArguments(voided(arguments)); err != nil {
		return malformed(err.Error())
	}
	_, err = im.b.AsOperator(im.user, v).Bind(d)
	if refusal, ok := err.(*topology.Error); ok && im.starts {
		im.warn("the binding of exchange '%s' in vhost '%s' to %s '%s' with the key '%s' is left out: %s", source, v, kind, destination, key, refusal.Text)
		return nil
	}
	if refusal, ok := err.(*topology.Error); ok && refusal.Kind == topology.NotFound {
		return malformed(refusal.Text)
	}
	return declared(err)
}

// voided returns a binding's arguments with void in place of "undefined", which is how an
// export shows void. A headers exchange distinguishes them: void matches any value, the text
// only itself.
func voided(arguments map[string]any) map[string]any {
	changed := make(map[string]any, len(arguments))
	for key, v := range arguments {
		if v == "undefined" {
			v = nil
		}
		changed[key] = v
	}
	return changed
}

func (im *importer) policy(o map[string]any) error {
	v, err := im.in(o)
	if err != nil {
		return err
	}
	name, err := im.name(o, "name")
	if err != nil {
		return err
	}
	return im.putPolicy(v, name, o, false)
}

// putPolicy skips the keys of mirrored queues, which old files have (BR-16.6).
func (im *importer) putPolicy(v message.VHost, name string, o map[string]any, operatorPolicy bool) error {
	d, err := Policy(name, o)
	if err != nil {
		return err
	}
	if legacy := d.Definition.LegacyKeys(); len(legacy) > 0 {
		im.warn("policy '%s' in vhost '%s': %s left out: there are no mirrored queues", name, v, strings.Join(legacy, ", "))
		for _, key := range legacy {
			delete(d.Definition, key)
		}
		if len(d.Definition) == 0 {
			return nil
		}
	}
	_, err = im.b.Do(declare.PutPolicy{VHost: v, Policy: d, Operator: operatorPolicy})
	return im.about(err, v, name)
}

// about adds the object to a refusal (BR-16.5).
func (im *importer) about(err error, v message.VHost, name string) error {
	if refusal, ok := err.(*topology.Error); ok && refusal.Kind == topology.Invalid {
		return malformed(fmt.Sprintf("%s (vhost: %q key: %q)", refusal.Text, v, name))
	}
	return err
}

func (im *importer) parameter(o map[string]any) error {
	v, err := im.in(o)
	if err != nil {
		return err
	}
	component, err := im.name(o, "component")
	if err != nil {
		return err
	}
	name, err := im.name(o, "name")
	if err != nil {
		return err
	}
	switch component {
	case OperatorPolicyComponent:
		value, err := Object(o["value"], "value")
		if err != nil {
			return err
		}
		return im.putPolicy(v, name, value, true)
	case VHostLimitsComponent:
		return im.about(SetVHostLimits(im.b, v, o["value"]), v, name)
	}
	if im.b.HandlesParameters(component) || im.unchecked != nil && im.unchecked(component) {
		return nil // see handledParameter
	}
	return im.putParameter(v, component, name, o)
}

// handledParameter sets a parameter that has an effect, such as a shovel.
func (im *importer) handledParameter(o map[string]any) error {
	var component, name string
	if err := im.names(o, textOf{"component", &component}, textOf{"name", &name}); err != nil || !im.b.HandlesParameters(component) {
		return err
	}
	v, err := im.in(o)
	if err != nil {
		return err
	}
	return im.putParameter(v, component, name, o)
}

func (im *importer) putParameter(v message.VHost, component, name string, o map[string]any) error {
	text, err := Encode(o["value"])
	if err != nil {
		return err
	}
	_, err = im.b.Do(declare.PutParameter{Parameter: topology.Parameter{VHost: v, Component: component, Name: name, Value: text}})
	return im.about(err, v, name)
}

func (im *importer) globalParameter(o map[string]any) error {
	name, err := im.name(o, "name")
	if err != nil {
		return err
	}
	if name == broker.ClusterIDParameter {
		return nil // another cluster's
	}
	text, err := Encode(o["value"])
	if err != nil {
		return err
	}
	_, err = im.b.Do(declare.PutGlobalParameter{GlobalParameter: topology.GlobalParameter{Name: name, Value: text}})
	return err
}
