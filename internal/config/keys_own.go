package config

import (
	"fmt"
	"time"
)

// ownKeys are those that RabbitMQ does not have.
var ownKeys = []key{
	{pattern: "compatibility.strict", value: flag(func(c *Config) *bool { return &c.Strict })},
	{pattern: "delivery_limit.count_nack", value: flag(func(c *Config) *bool { return &c.CountNack })},
	{pattern: "delivery_limit.reset_on_dead_letter", value: flag(func(c *Config) *bool { return &c.ResetOnDeadLetter })},
	{pattern: "dead_letter.strip_cc", value: flag(func(c *Config) *bool { return &c.StripCC })},
	{pattern: "dead_letter.trust_client_x_death", value: flag(func(c *Config) *bool { return &c.TrustClientDeath })},
	{pattern: "classic.at_least_once", value: flag(func(c *Config) *bool { return &c.ClassicAtLeastOnce })},
	{pattern: "storage.index_budget", value: byteCount(1<<20, func(c *Config) *int64 { return &c.Storage.IndexBudget })},
	{pattern: "storage.cache_budget", value: byteCount(1<<20, func(c *Config) *int64 { return &c.Storage.CacheBudget })},
	{pattern: "storage.checkpoint_bytes", value: byteCount(1<<20, func(c *Config) *int64 { return &c.Storage.CheckpointBytes })},
	{pattern: "storage.checkpoint_interval", value: value{
		set: milliseconds(100, func(c *Config) *time.Duration { return &c.Storage.CheckpointEvery }).set,
		show: func(c *Config) []named {
			if c.Storage.CheckpointEvery == 0 {
				return nil
			}
			return one(fmt.Sprint(c.Storage.CheckpointEvery.Milliseconds()))
		},
	}},
	{pattern: "dead_letter_worker_publisher_confirm_timeout", value: value{
		set: milliseconds(1, func(c *Config) *time.Duration { return &c.RetryHeld }).set,
		show: func(c *Config) []named {
			if c.RetryHeld == 0 {
				return nil
			}
			return one(fmt.Sprint(c.RetryHeld.Milliseconds()))
		},
	}},
}
