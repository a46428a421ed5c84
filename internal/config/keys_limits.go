package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxMessageSize is RabbitMQ's bound of max_message_size, 512 MiB.
const maxMessageSize = 512 << 20

var (
	maxConnections = orWord("infinity", 0, math.MaxInt32, 1, func(c *Config) *int { return &c.MaxConnections })
	maxChannels    = integer(0, math.MaxUint16, 1, func(c *Config) *uint16 { return &c.ChannelMax })
)

// goneFeatures are deprecated features of RabbitMQ that are not there, whether they are permitted or not.
var goneFeatures = []string{"amqp_address_v1", "amqp_filter_set_bug", "classic_queue_mirroring", "management_metrics_collection", "ram_node_type"}

// frameMax is a size of at least 4096 bytes; 0 is no limit.
var frameMax = value{
	set: func(p *parser, _, value string) (string, error) {
		n, err := byteSize(value)
		if err != nil || n != 0 && n < minFrameMax || n > math.MaxInt32 {
			return "", fmt.Errorf("is not a size from %d to %d bytes, or 0 for no limit", minFrameMax, math.MaxInt32)
		}
		p.c.FrameMax = uint32(n)
		return "", nil
	},
	show: func(c *Config) []named { return one(strconv.FormatUint(uint64(c.FrameMax), 10)) },
}

const minFrameMax = 4096

// limitKeys limit what clients may use of a node, and say what they may declare.
var limitKeys = []key{
	{pattern: "frame_max", live: true, value: frameMax},
	{pattern: "channel_max", live: true, value: maxChannels},
	{pattern: "session_max_per_connection", live: true, value: integer(1, 1<<16, 1, func(c *Config) *int { return &c.SessionMax })},
	{pattern: "link_max_per_session", live: true, value: integer(1, math.MaxInt32, 1, func(c *Config) *int { return &c.LinkMax })},
	{pattern: "max_channels_per_connection", live: true, value: value{set: maxChannels.set}},
	{pattern: "channel_max_per_node", live: true, value: orWord("infinity", 1, math.MaxInt32, 1, func(c *Config) *int { return &c.MaxNodeChannels })},
	{pattern: "max_connections", live: true, value: maxConnections},
	{pattern: "connection_max", live: true, value: value{set: maxConnections.set}},
	{pattern: "ranch_connection_max", live: true, value: value{set: maxConnections.set}},
	{pattern: "handshake_max_per_address", live: true, value: orWord("infinity", 1, math.MaxInt32, 1, func(c *Config) *int { return &c.MaxHandshakes })},
	{pattern: "consumer_max_per_channel", live: true, value: orWord("infinity", 1, math.MaxInt32, 1, func(c *Config) *int { return &c.MaxChannelConsumers })},
	{pattern: "max_message_size", value: integer(1, maxMessageSize, 1, func(c *Config) *int { return &c.MaxMessageSize })},
	{pattern: "consumer_timeout", value: orWord("undefined", 1, maxMilliseconds, time.Millisecond, func(c *Config) *time.Duration { return &c.ConsumerTimeout })},

	{pattern: "total_memory_available_override_value", live: true, value: byteCount(1<<20, func(c *Config) *int64 { return &c.TotalMemory })},
	{pattern: "queue_types.stream.enabled", value: value{set: func(_ *parser, _, value string) (string, error) {
		on, err := boolean(value)
		if on {
			return "streams are not supported", nil
		}
		return "", err
	}}},
	{pattern: "vm_memory_high_watermark.relative", live: true, value: share(1, func(c *Config) *Watermark { return &c.Memory })},
	{pattern: "vm_memory_high_watermark.absolute", live: true, value: absolute(func(c *Config) *Watermark { return &c.Memory })},
	{pattern: "disk_free_limit.relative", live: true, value: share(math.MaxInt32, func(c *Config) *Watermark { return &c.Disk })},
	{pattern: "disk_free_limit.absolute", live: true, value: absolute(func(c *Config) *Watermark { return &c.Disk })},

	{pattern: "default_queue_type", value: oneOf([]string{"classic", "quorum"}, func(c *Config) *string { return &c.DefaultQueueType })},
	{pattern: "deprecated_features.permit.*", value: value{
		set: func(p *parser, name, value string) (string, error) {
			on, err := boolean(value)
			if err != nil {
				return "", err
			}
			if slices.Contains(goneFeatures, name) {
				return "the deprecated feature " + name + " is not there", nil
			}
			if _, known := p.c.Permit[name]; !known {
				return "", fmt.Errorf("is for the deprecated feature %s, which there is not: there are %s", cut(name),
					strings.Join(slices.Concat(sortedKeys(p.c.Permit), goneFeatures), ", "))
			}
			p.c.Permit[name] = on
			return "", nil
		},
		show: func(c *Config) (shown []named) {
			for _, name := range slices.Sorted(maps.Keys(c.Permit)) {
				shown = append(shown, named{name, strconv.FormatBool(c.Permit[name])})
			}
			return shown
		},
	}},
}
