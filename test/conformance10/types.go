package main

import (
	"strings"

	"bartleby.mq/internal/wire/amqp10"
)

// A fieldType is a field of a composite type: its name and its type, both in the standard's words.
type fieldType struct{ name, typ string }

// A compositeType is a composite type of AMQP 1.0 with its fields in order.
type compositeType struct {
	name       string
	descriptor amqp10.Descriptor
	fields     []fieldType
}

// composites are the types that scenarios can send and transcripts can show field by field. The table stands here, and
// not in the codec, because scenarios send what the codec's structs cannot hold: fields of a wrong type, too many of them.
var composites = []compositeType{
	composite("open", amqp10.DescriptorOpen, "container-id string, hostname string, max-frame-size uint, channel-max ushort, idle-time-out uint, outgoing-locales symbols, incoming-locales symbols, offered-capabilities symbols, desired-capabilities symbols, properties fields"),
	composite("begin", amqp10.DescriptorBegin, "remote-channel ushort, next-outgoing-id uint, incoming-window uint, outgoing-window uint, handle-max uint, offered-capabilities symbols, desired-capabilities symbols, properties fields"),
	composite("attach", amqp10.DescriptorAttach, "name string, handle uint, role role, snd-settle-mode sender-settle-mode, rcv-settle-mode receiver-settle-mode, source source, target target, unsettled map, incomplete-unsettled boolean, initial-delivery-count uint, max-message-size ulong, offered-capabilities symbols, desired-capabilities symbols, properties fields"),
	composite("flow", amqp10.DescriptorFlow, "next-incoming-id uint, incoming-window uint, next-outgoing-id uint, outgoing-window uint, handle uint, delivery-count uint, link-credit uint, available uint, drain boolean, echo boolean, properties fields"),
	composite("transfer", amqp10.DescriptorTransfer, "handle uint, delivery-id uint, delivery-tag binary, message-format uint, settled boolean, more boolean, rcv-settle-mode receiver-settle-mode, state state, resume boolean, aborted boolean, batchable boolean"),
	composite("disposition", amqp10.DescriptorDisposition, "role role, first uint, last uint, settled boolean, state state, batchable boolean"),
	composite("detach", amqp10.DescriptorDetach, "handle uint, closed boolean, error error"),
	composite("end", amqp10.DescriptorEnd, "error error"),
	composite("close", amqp10.DescriptorClose, "error error"),
	composite("error", amqp10.DescriptorError, "condition symbol, description string, info fields"),
	composite("header", amqp10.DescriptorHeader, "durable boolean, priority ubyte, ttl uint, first-acquirer boolean, delivery-count uint"),
	composite("properties", amqp10.DescriptorProperties, "message-id message-id, user-id binary, to string, subject string, reply-to string, correlation-id message-id, content-type symbol, content-encoding symbol, absolute-expiry-time timestamp, creation-time timestamp, group-id string, group-sequence uint, reply-to-group-id string"),
	composite("received", amqp10.DescriptorReceived, "section-number uint, section-offset ulong"),
	composite("accepted", amqp10.DescriptorAccepted, ""),
	composite("rejected", amqp10.DescriptorRejected, "error error"),
	composite("released", amqp10.DescriptorReleased, ""),
	composite("modified", amqp10.DescriptorModified, "delivery-failed boolean, undeliverable-here boolean, message-annotations fields"),
	composite("source", amqp10.DescriptorSource, "address string, durable durability, expiry-policy symbol, timeout uint, dynamic boolean, dynamic-node-properties fields, distribution-mode symbol, filter fields, default-outcome state, outcomes symbols, capabilities symbols"),
	composite("target", amqp10.DescriptorTarget, "address string, durable durability, expiry-policy symbol, timeout uint, dynamic boolean, dynamic-node-properties fields, capabilities symbols"),
	composite("coordinator", amqp10.DescriptorCoordinator, "capabilities symbols"),
	composite("declare", amqp10.DescriptorDeclare, "global-id any"),
	composite("discharge", amqp10.DescriptorDischarge, "txn-id binary, fail boolean"),
	composite("declared", amqp10.DescriptorDeclared, "txn-id binary"),
	composite("transactional-state", amqp10.DescriptorTransactionalState, "txn-id binary, outcome state"),
	composite("sasl-mechanisms", amqp10.DescriptorSASLMechanisms, "sasl-server-mechanisms symbols"),
	composite("sasl-init", amqp10.DescriptorSASLInit, "mechanism symbol, initial-response binary, hostname string"),
	composite("sasl-challenge", amqp10.DescriptorSASLChallenge, "challenge binary"),
	composite("sasl-response", amqp10.DescriptorSASLResponse, "response binary"),
	composite("sasl-outcome", amqp10.DescriptorSASLOutcome, "code sasl-code, additional-data binary"),
}

// sections are the parts of a message that are no composite types, by their names in scenarios.
var sections = map[string]amqp10.Descriptor{
	"delivery-annotations": amqp10.DescriptorDeliveryAnnotations, "message-annotations": amqp10.DescriptorMessageAnnotations,
	"application-properties": amqp10.DescriptorApplicationProperties, "data": amqp10.DescriptorData,
	"amqp-sequence": amqp10.DescriptorAMQPSequence, "amqp-value": amqp10.DescriptorAMQPValue, "footer": amqp10.DescriptorFooter,
}

// choices are the restricted types: what each value is called.
var choices = map[string][]string{
	"role":                 {"sender", "receiver"},
	"sender-settle-mode":   {"unsettled", "settled", "mixed"},
	"receiver-settle-mode": {"first", "second"},
	"durability":           {"none", "configuration", "unsettled-state"},
	"sasl-code":            {"ok", "auth", "sys", "sys-perm", "sys-temp"},
}

// bases are the types that values of the table's types have on the wire. A type that is not here is its own.
var bases = map[string]string{
	"role": "boolean", "sender-settle-mode": "ubyte", "receiver-settle-mode": "ubyte", "durability": "uint", "sasl-code": "ubyte",
	"fields": "map",
}

// defaults are what fields mean that are null or left out, as transcripts write it. A sender may leave the default out or
// not, so transcripts never show it.
var defaults = map[string]string{
	"open max-frame-size": "4294967295", "open channel-max": "65535", "begin handle-max": "4294967295",
	"attach snd-settle-mode": "mixed", "attach rcv-settle-mode": "first", "attach incomplete-unsettled": "false",
	"flow drain": "false", "flow echo": "false",
	"transfer settled": "false", "transfer more": "false", "transfer resume": "false", "transfer aborted": "false", "transfer batchable": "false",
	"disposition settled": "false", "disposition batchable": "false", "detach closed": "false",
	"header durable": "false", "header priority": "4", "header first-acquirer": "false", "header delivery-count": "0",
	"modified delivery-failed": "false", "modified undeliverable-here": "false",
	"source durable": "none", "source expiry-policy": "session-end", "source timeout": "0", "source dynamic": "false",
	"target durable": "none", "target expiry-policy": "session-end", "target timeout": "0", "target dynamic": "false",
	"discharge fail": "false",
}

func composite(name string, d amqp10.Descriptor, fields string) compositeType {
	c := compositeType{name: name, descriptor: d}
	for f := range strings.SplitSeq(fields, ", ") {
		if name, typ, ok := strings.Cut(f, " "); ok {
			c.fields = append(c.fields, fieldType{name, typ})
		}
	}
	return c
}

func compositeNamed(name string) *compositeType {
	for i := range composites {
		if composites[i].name == name {
			return &composites[i]
		}
	}
	return nil
}

func compositeOf(d amqp10.Descriptor) *compositeType {
	for i := range composites {
		if composites[i].descriptor == d {
			return &composites[i]
		}
	}
	return nil
}

func base(typ string) string {
	if b, ok := bases[typ]; ok {
		return b
	}
	return typ
}
