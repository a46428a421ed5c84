package api

import (
	"fmt"
	"net/url"

	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/topology"
)

// queueMemory is what an empty queue is taken to cost, in bytes.
const queueMemory = 4096

func (s *server) listQueues(r *request) (any, error) {
	var infos []broker.QueueInfo
	r.eachVHost(func(v *topology.VHost) {
		for _, q := range v.Queues() {
			infos = append(infos, broker.Describe(q))
		}
	})
	show := s.showQueue
	if r.flag("disable_stats") {
		show = s.showQueueBriefly
	}
	return listOf(infos, func(q broker.QueueInfo) string { return string(q.Decl.Name) }, show), nil
}

// findQueue returns the queue in the path.
func (r *request) findQueue() (info broker.QueueInfo, err error) {
	err = notFound
	r.eachVHost(func(v *topology.VHost) {
		if q, ok := v.Queue(r.queueName()); ok {
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
	object := s.showQueue(q)
	consumers := []map[string]any{}
	for _, c := range s.b.Consumers(q) {
		consumers = append(consumers, s.showConsumer(q, c))
	}
	object["consumer_details"] = consumers
	object["deliveries"] = []any{}
	object["incoming"] = []any{}
	object["garbage_collection"] = map[string]any{}
	return object, nil
}

// showQueueBriefly is the form without statistics, with totals (BR-15.10).
func (s *server) showQueueBriefly(q broker.QueueInfo) map[string]any {
	object := s.showQueueDeclaration(q)
	c := s.b.Counts(q)
	object["messages"] = messagesIn(&c)
	object["messages_ready"] = c.Ready
	object["messages_unacknowledged"] = c.Out
	return object
}

// showQueueDeclaration is what is known of a queue without asking it.
func (s *server) showQueueDeclaration(q broker.QueueInfo) map[string]any {
	d := q.Decl
	object := map[string]any{
		"name": string(d.Name), "vhost": string(d.VHost), "durable": d.Durable, "auto_delete": d.AutoDelete,
		"exclusive": d.Exclusive, "arguments": topology.ArgumentsJSON(d.Arguments), "type": string(d.Type),
		"node": s.NodeName, "state": "running", "internal": false, "internal_owner": false,
		"policy": policyName(q.Policy), "operator_policy": policyName(q.OperatorPolicy),
		"effective_policy_definition": definitionOf(q.Definition),
	}
	if d.Exclusive {
		object["owner_pid_details"] = map[string]any{"name": d.Owner}
	}
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
	if d.Type == topology.Quorum || q.Effective.DelayedRetry.Type != topology.RetryDisabled {
		object["delayed_retry"] = showDelayedRetry(q.Effective.DelayedRetry)
	}
	return object
}

// showQueue is the whole object (BR-15.12), and what became of its dead besides.
func (s *server) showQueue(q broker.QueueInfo) map[string]any {
	object := s.showQueueDeclaration(q)
	c := s.b.Counts(q)
	s.putTotals(object, "queue\x00"+string(q.Decl.VHost)+"\x00"+string(q.Decl.Name), c)
	bytes := bytesIn(&c)
	object["consumers"] = c.Consumers
	object["consumer_utilisation"] = boolInt(c.Consumers > 0)
	object["consumer_capacity"] = boolInt(c.Consumers > 0)
	object["message_bytes"] = bytes
	object["message_bytes_ready"] = c.ReadyBytes
	object["message_bytes_unacknowledged"] = c.OutBytes
	object["messages_persistent"] = c.Persistent
	object["messages_ram"] = messagesIn(&c)
	object["message_bytes_ram"] = bytes
	object["memory"] = bytes + queueMemory
	object["head_message_timestamp"] = s.b.HeadTimestamp(q)
	object["messages_delayed"] = c.Delayed
	object["messages_dlx"] = c.Held + c.Dying
	object["message_bytes_dlx"] = c.HeldBytes + c.DyingBytes
	object["dead_letters"] = showDead(&c.Stats)
	s.putConsumerTags(object, q, c)
	if q.Decl.Type == topology.Quorum {
		object["messages_ready_returned"] = c.Returned
		byPriority := s.b.ReadyByPriority(q)
		object["messages_by_priority"] = byPriority
		object["messages_active_priorities"] = len(byPriority)
		object["open_files"] = map[string]any{s.NodeName: 0}
		object["publishers"] = 0
	} else {
		object["storage_version"] = 2
		object["messages_ready_ram"] = c.Ready
		object["messages_unacknowledged_ram"] = c.Out
	}
	return object
}

// putConsumerTags names the consumers that have a queue to themselves.
func (s *server) putConsumerTags(object map[string]any, q broker.QueueInfo, c partition.Counts) {
	object["exclusive_consumer_tag"], object["single_active_consumer_tag"] = nil, nil
	if c.Consumers == 0 {
		return
	}
	for _, consumer := range s.b.Consumers(q) {
		if consumer.Exclusive {
			object["exclusive_consumer_tag"] = consumer.Tag
		}
		if q.Effective.SingleActiveConsumer && consumer.Active {
			object["single_active_consumer_tag"] = consumer.Tag
		}
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
func showDelayedRetry(d topology.DelayedRetry) string {
	if d.Type == topology.RetryDisabled {
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
	if err := flags(r.body, flagOf{"durable", &d.Durable}, flagOf{"auto_delete", &d.AutoDelete}); err != nil {
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
		return nil, err
	}
	if err := missingKeys(r.body, "action"); err != nil {
		return nil, err
	}
	return nil, badRequest("unknown", r.body["action"])
}

func (s *server) listQueueBindings(r *request) (any, error) {
	var found []*topology.Binding
	r.eachVHost(func(v *topology.VHost) {
		if q, ok := v.Queue(r.queueName()); ok {
			found = q.Bindings()
		}
	})
	return bindingList(found), nil
}

// escapeSegment encodes a name as one segment of a path.
func escapeSegment[N ~string](name N) string { return url.PathEscape(string(name)) }
