package config

import (
	"fmt"
	"math"
	"time"
)

// ApsaraMQ are the settings of virtual hosts whose profile is apsaramq (DL-22), apsaramq.* in the file.
type ApsaraMQ struct {
	MaxRedeliveries    int64         // max_redeliveries: a message dies at the next failure (DL-22.1)
	ResetRedeliveries  bool          // reset_redeliveries: each queue counts from 0
	ConsumerTimeout    time.Duration // consumer_timeout, in ms there (DL-22.2)
	MaxConsumerTimeout time.Duration // max_consumer_timeout, in ms there: the largest consumer_timeout
	LimitReason        string        // limit_reason: the reason in headers after too many failures (DL-22.7)
	DLQTTL             bool          // dlq_ttl: dead letters expire too (DL-22.8)
	MaxHops            int64         // max_dead_letter_hops (DL-22.10)
	MaxDelay           time.Duration // max_delay, in ms there; 0: no message is delayed (DL-22.12)
	MaxRetention       time.Duration // max_retention, in ms there; 0: messages are kept for ever (DL-22.14)
	MaxMessageSize     int           // max_message_size, bytes (DL-22.14)
	Priorities         bool          // priorities: queues may have x-max-priority (DL-22.14)
	ErrorStyle         bool          // error_style: errors read as ApsaraMQ's (DL-22.15)
	ErrorHelp          string        // error_help: the address in these errors
}

func defaultApsaraMQ() ApsaraMQ {
	return ApsaraMQ{
		MaxRedeliveries: 16, ResetRedeliveries: true, ConsumerTimeout: 5 * time.Minute, MaxConsumerTimeout: 3 * time.Hour,
		LimitReason: "consumption_limit_exceeded", MaxHops: 16, MaxDelay: 7 * 24 * time.Hour, MaxRetention: 3 * 24 * time.Hour,
		MaxMessageSize: 10 << 20, ErrorHelp: "https://www.alibabacloud.com/help/en/apsaramq-for-rabbitmq",
	}
}

// apsaraKeys are the keys of the profile apsaramq, and the key for the profile of new virtual hosts.
var apsaraKeys = []key{
	{pattern: "profile", value: oneOf([]string{"rabbitmq", "apsaramq"}, func(c *Config) *string { return &c.Profile })},
	{pattern: "apsaramq.max_redeliveries", value: integer(0, math.MaxInt32, 1, func(c *Config) *int64 { return &c.ApsaraMQ.MaxRedeliveries })},
	{pattern: "apsaramq.reset_redeliveries", value: flag(func(c *Config) *bool { return &c.ApsaraMQ.ResetRedeliveries })},
	{pattern: "apsaramq.consumer_timeout", value: milliseconds(1, func(c *Config) *time.Duration { return &c.ApsaraMQ.ConsumerTimeout })},
	{pattern: "apsaramq.max_consumer_timeout", value: milliseconds(1, func(c *Config) *time.Duration { return &c.ApsaraMQ.MaxConsumerTimeout })},
	{pattern: "apsaramq.limit_reason", value: text(func(c *Config) *string { return &c.ApsaraMQ.LimitReason })},
	{pattern: "apsaramq.dlq_ttl", value: flag(func(c *Config) *bool { return &c.ApsaraMQ.DLQTTL })},
	{pattern: "apsaramq.max_dead_letter_hops", value: integer(1, math.MaxInt32, 1, func(c *Config) *int64 { return &c.ApsaraMQ.MaxHops })},
	{pattern: "apsaramq.max_delay", value: milliseconds(0, func(c *Config) *time.Duration { return &c.ApsaraMQ.MaxDelay })},
	{pattern: "apsaramq.max_retention", value: orWord("infinity", 1, maxMilliseconds, time.Millisecond, func(c *Config) *time.Duration { return &c.ApsaraMQ.MaxRetention })},
	{pattern: "apsaramq.max_message_size", value: integer(1, maxMessageSize, 1, func(c *Config) *int { return &c.ApsaraMQ.MaxMessageSize })},
	{pattern: "apsaramq.priorities", value: flag(func(c *Config) *bool { return &c.ApsaraMQ.Priorities })},
	{pattern: "apsaramq.error_style", value: flag(func(c *Config) *bool { return &c.ApsaraMQ.ErrorStyle })},
	{pattern: "apsaramq.error_help", value: text(func(c *Config) *string { return &c.ApsaraMQ.ErrorHelp })},
}

// check finds settings that contradict each other.
func (a *ApsaraMQ) check() error {
	if a.ConsumerTimeout > a.MaxConsumerTimeout {
		return fmt.Errorf("apsaramq.consumer_timeout: %d ms are more than apsaramq.max_consumer_timeout allows, %d ms",
			a.ConsumerTimeout.Milliseconds(), a.MaxConsumerTimeout.Milliseconds())
	}
	return nil
}
