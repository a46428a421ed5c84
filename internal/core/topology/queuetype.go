package topology

import "slices"

// QueueType is the kind of a queue as x-queue-type names it.
type QueueType string

// The queue types. Streams are known but not implemented (BR-10.4).
const (
	Classic QueueType = "classic"
	Quorum  QueueType = "quorum"
	Stream  QueueType = "stream"
)

func (t QueueType) known() bool { return t == Classic || t == Quorum || t == Stream }

// module is RabbitMQ's name of the type inside error texts.
func (t QueueType) module() string { return "rabbit_" + string(t) + "_queue" }

// arguments lists the arguments of each queue type, in the order in which a redeclaration compares them (BR-7.12, DL-3.9).
var arguments = map[QueueType][]string{
	Classic: {
		"x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-max-length",
		"x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-mode", "x-queue-version",
		"x-single-active-consumer", "x-queue-type", "x-queue-master-locator", "x-queue-leader-locator",
	},
	Quorum: {
		"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-expires", "x-max-length",
		"x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-overflow",
		"x-single-active-consumer", "x-queue-type", "x-quorum-initial-group-size", "x-delivery-limit", "x-message-ttl",
		"x-queue-leader-locator", "x-consumer-disconnected-timeout", "x-consumer-timeout", "x-delayed-retry-type",
		"x-delayed-retry-min", "x-delayed-retry-max",
	},
	Stream: {
		"x-max-length-bytes", "x-queue-type", "x-max-age", "x-stream-max-segment-size-bytes",
		"x-stream-filter-size-bytes", "x-initial-cluster-size", "x-queue-leader-locator",
	},
}

// anyType lists all arguments of all types. An argument of another type is an error; any other unknown argument is ignored
// (DL-3.8).
var anyType = func() []string {
	var all []string
	for _, t := range []QueueType{Classic, Quorum, Stream} {
		all = append(all, arguments[t]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}()

// Bartleby's own arguments: delayed retry on classic queues, and its curve on both.
var (
	delayedRetryArguments = []string{"x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"}
	retryCurveArguments   = []string{"x-delayed-retry-multiplier", "x-delayed-retry-jitter"}
)

// dialect is the part of the options that decides about arguments; a queue keeps the dialect of its creation.
type dialect struct {
	strict             bool
	classicAtLeastOnce bool
}

// knownArguments lists the arguments of a type in a dialect.
func (d dialect) knownArguments(t QueueType) []string {
	known := arguments[t]
	if t == Classic && d.classicAtLeastOnce {
		known = slices.Concat(known, []string{"x-dead-letter-strategy"})
	}
	if d.strict || t == Stream {
		return known
	}
	if t == Classic {
		known = slices.Concat(known, delayedRetryArguments)
	}
	return slices.Concat(known, retryCurveArguments)
}

// foreign says whether an argument belongs to another queue type only.
func (d dialect) foreign(t QueueType, arg string) bool {
	_, known := slices.BinarySearch(anyType, arg)
	return known && !slices.Contains(d.knownArguments(t), arg)
}
