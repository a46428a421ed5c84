package api

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/definitions"
	"bartleby.mq/internal/run/partition"
)

// queueMemory is the estimated memory of an empty queue, in bytes.
const queueMemory = 4096

func (s *server) listQueues(r *request) (any, error) {
	return r.queueList(func(q broker.QueueInfo) map[string]any {
		object := s.showQueue(q, r.spans())
		if s.b.Strict {
			if r.URL.Query().Has("columns") {
				return object
			}
			delete(object, "idle_since")
		}
		maps.DeleteFunc(object, func(_ string, v any) bool { return v == nil })
		return object
	}), nil
}

// listQueuesInDetail leaves nothing out.
func (s *server) listQueuesInDetail(r *request) (any, error) {
	return r.queueList(func(q broker.QueueInfo) map[string]any {
		object := s.showQueue(q, r.spans())
		object["garbage_collection"] = noGarbageCollection()
		return object
	}), nil
}

func (r *request) queueList(show func(broker.QueueInfo) map[string]any) list {
	var infos []broker.QueueInfo
	r.eachVHost(func(v *topology.VHost) {
		v.EachQueue(func(q *topology.Queue) { infos = append(infos, broker.Describe(q)) })
	})
	broker.SortQueues(infos)
	if r.flag("disable_stats") {
		show = r.showQueueBriefly
	}
	return listOf(infos, func(q broker.QueueInfo) string { return string(q.Decl.Name) }, show)
}

// findQueue returns the queue in the path. Some tools, such as KEDA, encode the name as in a
// query: if the queue does not exist, findQueue reads a plus as a blank.
func (r *request) findQueue() (info broker.QueueInfo, err error) {
	err = notFound
	r.eachVHost(func(v *topology.VHost) {
		q, ok := v.Queue(r.queueName())
		if blank := strings.ReplaceAll(r.params["queue"], "+", " "); !ok && blank != r.params["queue"] {
			if q, ok = v.Queue(message.QueueName(blank)); ok {
				r.params["queue"] = blank
			}
		}
		if ok {
			info, err = broker.Describe(q), nil
		}
	})
	return info, err
}

func (s *server) getQueue(r *request) (any, error) {
	q, err := r.findQueue()
	if err != nil {
		return nil, err
	}
	if r.flag("disable_stats") {
		return r.showQueueBriefly(q), nil
	}
	sp := r.spans()
	if sp.lengths.step > 0 {
		s.watched.watch(watchedOf(q.Decl), time.Now(), s.history.dismiss)
	}
	object := s.showQueue(q, sp)
	consumers := []map[string]any{}
	for _, c := range s.b.Consumers(q) {
		consumers = append(consumers, s.showConsumer(q, c))
	}
	object["consumer_details"] = consumers
	object["deliveries"] = []any{}
	object["incoming"] = []any{}
	object["garbage_collection"] = noGarbageCollection()
	if q.Decl.Exclusive {
		object["owner_pid_details"] = s.ownerOf(q.Decl)
	}
	return object, nil
}

// ownerOf is the owning connection of an exclusive queue.
func (s *server) ownerOf(d *topology.Queue) map[string]any {
	owner := map[string]any{"name": broker.OwnerName(d), "peer_host": "", "peer_port": 0}
	for _, c := range s.b.Connections() {
		if c.Owner() == d.Owner {
			owner["peer_host"], owner["peer_port"] = c.PeerHost, c.PeerPort
		}
	}
	return owner
}

// showQueueBriefly is the form without statistics; it has totals if they are requested
// (BR-15.10).
func (r *request) showQueueBriefly(q broker.QueueInfo) map[string]any {
	object := r.s.showQueueDeclaration(q)
	if r.flag("enable_queue_totals") {
		if r.s.b.Strict {
			leaveOutOfTotals(object, q)
		}
		c := r.s.b.Counts(q)
		object["messages"] = c.Messages()
		object["messages_ready"] = c.Ready
		object["messages_unacknowledged"] = c.Out
		if _, one := r.params["queue"]; r.s.b.Strict && !one {
			delete(object, "internal")
			delete(object, "internal_owner")
		}
	}
	return object
}

// leaveOutOfTotals makes of a declaration what RabbitMQ shows beside totals.
func leaveOutOfTotals(object map[string]any, q broker.QueueInfo) {
	if q.Policy == nil {
		delete(object, "policy")
	}
	if q.Decl.Type == topology.Quorum {
		object["exclusive"] = nil
		return
	}
	object["online"] = nil
	delete(object, "operator_policy")
	delete(object, "effective_policy_definition")
}

// showQueueDeclaration shows the declaration of a queue, without its counts.
func (s *server) showQueueDeclaration(q broker.QueueInfo) map[string]any {
	d := q.Decl
	arguments := topology.ArgumentsJSON(q.Effective.Arguments)
	object := map[string]any{
		"name": string(d.Name), "vhost": string(d.VHost), "durable": d.Durable, "auto_delete": d.AutoDelete,
		"exclusive": d.Exclusive, "arguments": arguments, "type": string(d.Type),
		"node": s.NodeName, "state": "running", "internal": false, "internal_owner": false,
		"policy": policyName(q.Policy), "operator_policy": policyName(q.OperatorPolicy),
		"effective_policy_definition": definitionOf(q.Definition()),
	}
	properties := map[string]any{"durable": d.Durable, "auto-delete": d.AutoDelete, "exclusive": d.Exclusive}
	if d.Type == topology.Quorum {
		properties["delayed retry"] = "not enabled"
	}
	if retry := q.Effective.DelayedRetry; retry.Type != queue.RetryDisabled {
		properties["delayed retry"] = showDelayedRetry(retry)
	}
	if !s.b.Strict {
		if q.Effective.Changed {
			object["declared_arguments"] = topology.ArgumentsJSON(d.Arguments)
		}
		putDeadLettering(object, &q)
	}
	object["features"] = features(properties, arguments, namedPolicy{"Policy", q.Policy}, namedPolicy{"Operator policy", q.OperatorPolicy})
	if d.Type == topology.Quorum {
		object["leader"] = s.NodeName
		object["members"] = []string{s.NodeName}
		object["online"] = []string{s.NodeName}
		if limit := q.Effective.DeliveryLimit; limit != nil {
			object["delivery_limit"] = *limit
			if *limit < 0 {
				object["delivery_limit"] = "unlimited"
			}
		}
	}
	return object
}

// showQueue is the whole object (BR-15.12), with the deaths of the queue.
func (s *server) showQueue(q broker.QueueInfo, sp spans) map[string]any {
	object := s.showQueueDeclaration(q)
	c := s.b.Counts(q)
	name := watchedOf(q.Decl).key()
	s.putLengths(object, name, sp, &c)
	s.putStats(object, name, sp, false, statGroup{"publish": c.Stats.Published}, deliveries(&c.Stats))
	bytes := bytesIn(&c)
	object["consumers"] = c.Consumers
	object["consumer_utilisation"], object["consumer_capacity"] = 0, 0
	if c.Consumers > 0 {
		object["consumer_utilisation"], object["consumer_capacity"] = decimal(1), decimal(1)
	}
	object["message_bytes"] = bytes
	object["message_bytes_ready"] = c.ReadyBytes
	object["message_bytes_unacknowledged"] = c.OutBytes
	object["message_bytes_persistent"] = persistentBytes(&c)
	object["messages_persistent"] = c.Persistent
	object["messages_ram"] = c.Messages()
	object["message_bytes_ram"] = bytes
	object["memory"] = bytes + queueMemory
	object["reductions"], object["reductions_details"] = 0, map[string]any{"rate": decimal(0)}
	if s.b.Strict && sp.data.step > 0 {
		s.history.put(object, name+"\x00reductions", sp.data, map[string]float64{"reductions": 0})
	}
	object["messages_in_transit"] = c.Transit
	object["messages_stranded"] = c.Stranded
	object["messages_set_aside"] = c.Stats.SetAside
	object["annotations_dropped"] = c.Stats.Unmerged
	object["dead_letters"] = showDead(&c.Stats)
	s.putConsumerTags(object, q, c)
	if q.Decl.Type == topology.Quorum {
		s.putQuorum(object, q, &c)
	} else {
		object["storage_version"] = 2
		object["messages_ready_ram"] = c.Ready
		object["messages_unacknowledged_ram"] = c.Out
		object["head_message_timestamp"] = nil
		if at, ok := s.b.HeadTimestamp(q); ok {
			object["head_message_timestamp"] = at
		}
		putIdle(object, max(c.Stats.Active, time.Now().Add(-s.b.Uptime()).UnixMilli()))
	}
	s.putDelayed(object, q, &c)
	if b := c.Breaker; b.State != queue.BreakerNone && !s.b.Strict {
		object["breaker"] = showBreaker(b)
	}
	return object
}

// persistentBytes is the share of the bytes that the persistent messages have, who
// are counted and not weighed: all of them where all are persistent.
func persistentBytes(c *partition.Counts) int64 {
	n := c.Messages()
	if n == 0 {
		return 0
	}
	return int64(float64(bytesIn(c)) * float64(c.Persistent) / float64(n))
}

// putQuorum sets what only quorum queues show.
func (s *server) putQuorum(object map[string]any, q broker.QueueInfo, c *partition.Counts) {
	object["messages_ready_returned"] = c.Returned
	byPriority := s.b.ReadyByPriority(q.Decl)
	object["messages_by_priority"] = byPriority
	object["messages_active_priorities"] = len(byPriority)
	object["open_files"] = map[string]any{s.NodeName: 0}
	object["publishers"] = 0
}

// putDelayed adds the messages that wait for a retry, and the held dead letters: on quorum
// queues always, on others if there are any (DL-12, DL-13).
func (s *server) putDelayed(object map[string]any, q broker.QueueInfo, c *partition.Counts) {
	quorum := q.Decl.Type == topology.Quorum
	if quorum || q.Effective.DelayedRetry.Type != queue.RetryDisabled {
		object["delayed_retry"] = showDelayedRetry(q.Effective.DelayedRetry)
		object["messages_delayed"] = c.Delayed
	}
	if quorum || c.Held+c.Dying > 0 {
		object["messages_dlx"] = c.Held + c.Dying
		object["message_bytes_dlx"] = c.HeldBytes + c.DyingBytes
	}
	if c.Delayed == 0 {
		return
	}
	if first, last := s.b.DelayedUntil(q); first > 0 {
		object["next_delayed_at"], object["last_delayed_at"] = first, last
	}
}

// putConsumerTags names the consumers that have a queue to themselves.
func (s *server) putConsumerTags(object map[string]any, q broker.QueueInfo, c partition.Counts) {
	if q.Decl.Type == topology.Quorum {
		object["single_active_consumer_tag"] = ""
		if s.b.Strict {
			object["single_active_consumer_tag"] = nil
		}
	} else {
		object["exclusive_consumer_tag"], object["single_active_consumer_tag"] = nil, nil
	}
	if c.Consumers == 0 {
		return
	}
	exclusive, active := s.b.DistinguishedConsumers(q)
	if active == "" && s.b.Strict && q.Decl.Type == topology.Quorum {
		// RabbitMQ names the first one there, whether it is the only one or not.
		if i := slices.IndexFunc(s.b.Consumers(q), func(c broker.AttachedConsumer) bool { return c.Active }); i >= 0 {
			active = s.b.Consumers(q)[i].Tag
		}
	}
	if exclusive != "" {
		object["exclusive_consumer_tag"] = exclusive
	}
	if active != "" {
		object["single_active_consumer_tag"] = active
	}
}

func policyName(p *topology.Policy) any {
	if p == nil {
		return nil
	}
	return p.Name
}

// definitionOf is never null in JSON.
func definitionOf(d topology.Definition) topology.Definition {
	if d == nil {
		return topology.Definition{}
	}
	return d
}

// showDelayedRetry prints as RabbitMQ does (DL-12.6), and the curve where there is one.
func showDelayedRetry(d queue.Retry) string {
	if d.Type == queue.RetryDisabled {
		return d.Type.String()
	}
	text := fmt.Sprintf("%s (min: %dms, max: %dms", d.Type, d.Min, d.Max)
	if d.Multiplier > 0 {
		text += fmt.Sprintf(", multiplier: %g", d.Multiplier)
	}
	if d.Jitter > 0 {
		text += fmt.Sprintf(", jitter: %g", d.Jitter)
	}
	return text + ")"
}

func (s *server) putQueue(r *request) (any, error) {
	d := topology.QueueDecl{Name: r.queueName()}
	if n := len(d.Name); n > math.MaxUint8 && s.b.Strict {
		return nil, badRequest(fmt.Sprintf("queue should be less than 255 bytes, actually was %d\n", n))
	}
	if node, ok := r.body["node"].(string); ok && s.b.Strict && node != s.NodeName {
		return nil, badRequest("Node " + node + " is not a cluster member")
	}
	if err := definitions.Flags(r.body, definitions.Flag{Key: "durable", To: &d.Durable}, definitions.Flag{Key: "auto_delete", To: &d.AutoDelete}); err != nil {
		return nil, err
	}
	arguments, err := r.object("arguments")
	if err != nil {
		return nil, err
	}
	if d.Arguments, err = topology.ParseArguments(arguments); err != nil {
		return nil, badRequest(err.Error())
	}
	declared, err := r.link().DeclareQueue(d)
	return putDone(declared.Created, err)
}

func (s *server) deleteQueue(r *request) (any, error) {
	if _, err := r.findQueue(); err != nil {
		return nil, err
	}
	_, err := r.link().DeleteQueue(r.queueName(), r.flag("if-unused"), r.flag("if-empty"))
	return nil, err
}

func (s *server) purgeQueue(r *request) (any, error) {
	if _, err := r.findQueue(); err != nil {
		return nil, err
	}
	_, err := r.link().Purge(r.queueName())
	return nil, err
}

// queueAction: the actions of RabbitMQ 3 concerned mirrors, and none is left (BR-15.4).
func (s *server) queueAction(r *request) (any, error) {
	if _, err := r.findQueue(); err != nil {
		return nil, &failure{http.StatusNotFound, "not_found", "queue_not_found"}
	}
	if err := missingKeys(r.body, "action"); err != nil {
		return nil, err
	}
	return nil, badRequest("unknown", r.body["action"])
}

func (s *server) listQueueBindings(r *request) (any, error) {
	var found []*topology.Binding
	inVHost := false
	r.eachVHost(func(v *topology.VHost) {
		inVHost = true
		if q, ok := v.Queue(r.queueName()); ok {
			found = q.Bindings()
		}
	})
	if !inVHost {
		return objects(nil), nil
	}
	if len(found) == 0 {
		// RabbitMQ makes the default binding up of the name, be there such a queue or not.
		return objects([]map[string]any{defaultBinding(r.vhost(), r.queueName())}), nil
	}
	return bindingList(topology.SortBindings(found)), nil
}

// escapeSegment encodes a name as one segment of a path.
func escapeSegment[N ~string](name N) string { return url.PathEscape(string(name)) }

// putDeadLettering shows where dead letters of a queue go, and which of its arguments, its policy and its virtual host says so.
func putDeadLettering(object map[string]any, q *broker.QueueInfo) {
	e := q.Effective
	if e.DeadLetterExchange == nil {
		return
	}
	shown := map[string]any{"exchange": *e.DeadLetterExchange, "routing_key": nil, "strategy": e.Strategy.String(), "from": "policy"}
	if e.DeadLetterRoutingKey != nil {
		shown["routing_key"] = *e.DeadLetterRoutingKey
	}
	if _, ok := e.Arguments.Get("x-dead-letter-exchange"); ok {
		shown["from"] = "arguments"
	} else if e.DefaultDeadLetter != "" {
		shown["from"] = "virtual_host"
	}
	object["effective_dead_letter"] = shown
}
