package topology

import (
	"encoding/json"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

// KeyPrefix is the prefix of all keys of this package in the store.
const KeyPrefix = "topology/"

// recordVersion is in every record; a reader refuses newer records.
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
	leavingKind         = KeyPrefix + "leaving"
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
	Before  uint64          `json:"made_after_queue,omitempty"`
}

type exchangeRecord struct {
	Version    int                  `json:"v"`
	VHost      message.VHost        `json:"vhost"`
	Name       message.ExchangeName `json:"name"`
	Type       routing.Kind         `json:"type"`
	AutoDelete bool                 `json:"auto_delete,omitempty"`
	Internal   bool                 `json:"internal,omitempty"`
	Arguments  TypedTable           `json:"arguments,omitempty"`
	User       string               `json:"user,omitempty"`
	Waiting    uint64               `json:"waiting,omitempty"` // the incarnation of the queue in which messages wait
}

type queueRecord struct {
	Version     int               `json:"v"`
	VHost       message.VHost     `json:"vhost"`
	Name        message.QueueName `json:"name"`
	AutoDelete  bool              `json:"auto_delete,omitempty"`
	Arguments   TypedTable        `json:"arguments,omitempty"`
	Incarnation uint64            `json:"incarnation"`
	Strict      bool              `json:"strict,omitempty"`
	AtLeastOnce bool              `json:"classic_at_least_once,omitempty"`
	Group       uint64            `json:"group,omitempty"`
	Priorities  bool              `json:"apsaramq_priorities,omitempty"`
	Changed     TypedTable        `json:"changed_arguments,omitempty"` // all arguments that hold, if some were changed
}

type bindingRecord struct {
	Version     int                  `json:"v"`
	VHost       message.VHost        `json:"vhost"`
	Source      message.ExchangeName `json:"source"`
	ToExchange  bool                 `json:"to_exchange,omitempty"`
	Destination string               `json:"destination"`
	Key         message.RoutingKey   `json:"key"`
	Arguments   TypedTable           `json:"arguments,omitempty"`
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
	By        string          `json:"by,omitempty"`
	Orphaned  bool            `json:"orphaned,omitempty"`
}

func vhostKey(name message.VHost) string { return mutation.Key(vhostKind, string(name)) }

func exchangeKey(v message.VHost, name message.ExchangeName) string {
	return mutation.Key(exchangeKind, string(v), string(name))
}

func queueKey(v message.VHost, name message.QueueName) string {
	return mutation.Key(queueKind, string(v), string(name))
}

// StoreKey implements mutation.Named.
func (b *Binding) StoreKey() string { return bindingKey(b) }

func bindingKey(b *Binding) string {
	kind := "q"
	if b.id.kind == ExchangeResource {
		kind = "e"
	}
	return mutation.Key(bindingKind, string(b.VHost), string(b.id.source), kind, b.id.destination, b.PropertiesKey())
}

func policyRecordKey(operator bool, v message.VHost, name string) string {
	if operator {
		return mutation.Key(operatorPolicyKind, string(v), name)
	}
	return mutation.Key(policyKind, string(v), name)
}

func parameterKey(v message.VHost, component, name string) string {
	return mutation.Key(parameterKind, string(v), component, name)
}

func globalParameterKey(name string) string { return mutation.Key(globalParameterKind, name) }

func (s *State) logVHost(v *VHost) {
	s.log.Put(vhostKey(v.Name), vhostRecord{recordVersion, v.Name, v.Metadata, v.limits, v.before})
}

func (s *State) logExchange(x *Exchange) {
	r := exchangeRecord{
		Version: recordVersion, VHost: x.VHost, Name: x.Name, Type: x.Type, AutoDelete: x.AutoDelete, Internal: x.Internal, User: x.User,
	}
	if x.Waiting != nil {
		r.Waiting = x.Waiting.Incarnation
	}
	s.log.PutText(exchangeKey(x.VHost, x.Name), withArguments(r, x.encoded))
}

func (s *State) logParameter(p Parameter) {
	s.log.Put(parameterKey(p.VHost, p.Component, p.Name), parameterRecord{
		recordVersion, p.VHost, p.Component, p.Name, p.Value, p.By, p.Orphaned,
	})
}

func (s *State) logQueue(q *Queue) {
	s.log.PutText(queueKey(q.VHost, q.Name), withArguments(queueRecord{
		recordVersion, q.VHost, q.Name, q.AutoDelete, nil, q.Incarnation, q.Strict, q.AtLeastOnce, q.Group, q.Priorities, TypedTable(q.changed),
	}, q.encoded))
}

func (s *State) logBinding(b *Binding, encoded encodedArguments) {
	s.log.PutText(bindingKey(b), withArguments(bindingRecord{
		recordVersion, b.VHost, b.id.source, b.id.kind == ExchangeResource, b.id.destination, b.Key, nil,
	}, encoded))
}

func (s *State) logPolicy(p *Policy) {
	s.log.Put(p.key(), policyRecord{
		recordVersion, p.VHost, p.Name, p.Pattern, p.ApplyTo, p.Priority, p.Definition, p.seq,
	})
}

// TypedTable is an AMQP table whose JSON form keeps the field types.
type TypedTable amqp091.Table

// encodedArguments is the stored form of arguments, without the brackets around it. Callers make it before they lock and
// change the State, because encoding may take a while, and may fail.
type encodedArguments []byte

// encode returns the stored form of arguments. It fails if they could not be read back.
func encode(t amqp091.Table) (encodedArguments, error) {
	if err := CheckArguments(t); err != nil {
		return nil, err
	}
	b, err := appendFields(make([]byte, 0, 64), t)
	if err != nil {
		return nil, Refuse(PreconditionFailed, "invalid arguments: %s", err)
	}
	return b, nil
}

// EncodeArguments makes the stored form of the arguments. The State does it if the caller did not.
func (d *QueueDecl) EncodeArguments() (err error) {
	if d.encoded == nil {
		d.encoded, err = encode(d.Arguments)
	}
	return err
}

// EncodeArguments makes the stored form of the arguments. The State does it if the caller did not.
func (d *ExchangeDecl) EncodeArguments() (err error) {
	if d.encoded == nil {
		d.encoded, err = encode(d.Arguments)
	}
	return err
}

// EncodeArguments makes the stored form of the arguments, or notes that they are refused, which matters only for a new
// binding. The State does it if the caller did not.
func (d *BindingDecl) EncodeArguments() {
	if d.encoded == nil && d.unencoded == nil {
		d.Identify()
		d.encoded, d.unencoded = encode(d.Arguments)
	}
}

// withArguments is the JSON form of a record with arguments.
func withArguments(record any, encoded encodedArguments) []byte {
	text, err := json.Marshal(record)
	if err != nil {
		panic("topology: record does not marshal: " + err.Error()) // it is numbers, flags and names
	}
	if len(encoded) == 0 {
		return text
	}
	text = append(text[:len(text)-1], `,"arguments":[`...)
	return append(append(text, encoded...), "]}"...)
}
