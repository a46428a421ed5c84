package topology

import (
	"encoding/json"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/change"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/routing"
)

// KeyPrefix begins every key of this package in the store.
const KeyPrefix = "topology/"

// recordVersion is written in every record; a reader refuses records newer than it knows.
const recordVersion = 1

// The kinds of keys below KeyPrefix.
const (
	vhostKind           = KeyPrefix + "vhost"
	exchangeKind        = KeyPrefix + "exchange"
	queueKind           = KeyPrefix + "queue"
	bindingKind         = KeyPrefix + "binding"
	policyKind          = KeyPrefix + "policy"
	operatorPolicyKind  = KeyPrefix + "operator-policy"
	parameterKind       = KeyPrefix + "parameter"
	globalParameterKind = KeyPrefix + "global-parameter"
	counterKey          = KeyPrefix + "counter"
)

type counterRecord struct {
	Version  int    `json:"v"`
	Reserved uint64 `json:"incarnations_reserved"`
}

type vhostRecord struct {
	Version int             `json:"v"`
	Name    message.VHost   `json:"name"`
	Meta    Metadata        `json:"metadata"`
	Limits  map[Limit]int64 `json:"limits,omitempty"`
}

type exchangeRecord struct {
	Version    int                  `json:"v"`
	VHost      message.VHost        `json:"vhost"`
	Name       message.ExchangeName `json:"name"`
	Type       routing.Kind         `json:"type"`
	AutoDelete bool                 `json:"auto_delete,omitempty"`
	Internal   bool                 `json:"internal,omitempty"`
	Arguments  typedTable           `json:"arguments,omitempty"`
	User       string               `json:"user,omitempty"`
}

type queueRecord struct {
	Version     int               `json:"v"`
	VHost       message.VHost     `json:"vhost"`
	Name        message.QueueName `json:"name"`
	AutoDelete  bool              `json:"auto_delete,omitempty"`
	Arguments   typedTable        `json:"arguments,omitempty"`
	Incarnation uint64            `json:"incarnation"`
	Strict      bool              `json:"strict,omitempty"`
	AtLeastOnce bool              `json:"classic_at_least_once,omitempty"`
	Group       uint64            `json:"group,omitempty"`
	Priorities  bool              `json:"apsaramq_priorities,omitempty"`
}

type bindingRecord struct {
	Version     int                  `json:"v"`
	VHost       message.VHost        `json:"vhost"`
	Source      message.ExchangeName `json:"source"`
	ToExchange  bool                 `json:"to_exchange,omitempty"`
	Destination string               `json:"destination"`
	Key         message.RoutingKey   `json:"key"`
	Arguments   typedTable           `json:"arguments,omitempty"`
}

type policyRecord struct {
	Version    int           `json:"v"`
	VHost      message.VHost `json:"vhost"`
	Name       string        `json:"name"`
	Pattern    string        `json:"pattern"`
	ApplyTo    ApplyTo       `json:"apply_to"`
	Priority   float64       `json:"priority"`
	Definition Definition    `json:"definition"`
	Seq        uint64        `json:"seq"`
}

type parameterRecord struct {
	Version   int             `json:"v"`
	VHost     message.VHost   `json:"vhost,omitempty"`
	Component string          `json:"component,omitempty"`
	Name      string          `json:"name"`
	Value     json.RawMessage `json:"value"`
}

func vhostKey(name message.VHost) string { return change.Key(vhostKind, string(name)) }

func exchangeKey(v message.VHost, name message.ExchangeName) string {
	return change.Key(exchangeKind, string(v), string(name))
}

func queueKey(v message.VHost, name message.QueueName) string {
	return change.Key(queueKind, string(v), string(name))
}

func bindingKey(b *Binding) string {
	kind := "q"
	if b.id.kind == ExchangeResource {
		kind = "e"
	}
	return change.Key(bindingKind, string(b.VHost), string(b.id.source), kind, b.id.destination, b.PropertiesKey())
}

func policyRecordKey(operator bool, v message.VHost, name string) string {
	if operator {
		return change.Key(operatorPolicyKind, string(v), name)
	}
	return change.Key(policyKind, string(v), name)
}

func parameterKey(v message.VHost, component, name string) string {
	return change.Key(parameterKind, string(v), component, name)
}

func globalParameterKey(name string) string { return change.Key(globalParameterKind, name) }

func (s *State) logVHost(v *VHost) {
	s.log.Put(vhostKey(v.Name), vhostRecord{recordVersion, v.Name, v.Metadata, v.limits})
}

func (s *State) logExchange(x *Exchange) {
	s.log.Put(exchangeKey(x.VHost, x.Name), exchangeRecord{
		recordVersion, x.VHost, x.Name, x.Type, x.AutoDelete, x.Internal, typedTable(x.Arguments), x.User,
	})
}

func (s *State) logQueue(q *Queue) {
	s.log.Put(queueKey(q.VHost, q.Name), queueRecord{
		recordVersion, q.VHost, q.Name, q.AutoDelete, typedTable(q.Arguments), q.Incarnation, q.Strict, q.AtLeastOnce, q.Group, q.Priorities,
	})
}

func (s *State) logBinding(b *Binding) {
	s.log.Put(bindingKey(b), bindingRecord{
		recordVersion, b.VHost, b.id.source, b.id.kind == ExchangeResource, b.id.destination, b.Key, typedTable(b.Arguments),
	})
}

func (s *State) logPolicy(p *Policy) {
	s.log.Put(p.key(), policyRecord{
		recordVersion, p.VHost, p.Name, p.Pattern, p.ApplyTo, p.Priority, p.Definition, p.seq,
	})
}

// typedTable is an AMQP table whose JSON form keeps the field types, which plain JSON does not.
type typedTable amqp091.Table
