package config

import "time"

// ownKeys are keys that RabbitMQ does not have.
var ownKeys = []key{
	{pattern: "compatibility.strict", value: flag(func(c *Config) *bool { return &c.Strict })},
	{pattern: "amqp10.enabled", value: flag(func(c *Config) *bool { return &c.AMQP10 })},
	{pattern: "settle_exchange.enabled", value: flagIfSaid(func(c *Config) **bool { return &c.SettleExchange })},
	{pattern: "delivery_limit.count_nack", value: flagIfSaid(func(c *Config) **bool { return &c.CountNack })},
	{pattern: "lost_and_found.enabled", value: flagIfSaid(func(c *Config) **bool { return &c.LostAndFound })},
	{pattern: "delivery_limit.reset_on_dead_letter", value: flag(func(c *Config) *bool { return &c.ResetOnDeadLetter })},
	{pattern: "dead_letter.strip_cc", value: flag(func(c *Config) *bool { return &c.StripCC })},
	{pattern: "dead_letter.trust_client_x_death", value: flag(func(c *Config) *bool { return &c.TrustClientDeath })},
	{pattern: "classic.at_least_once", value: flag(func(c *Config) *bool { return &c.ClassicAtLeastOnce })},
	{pattern: "storage.index_budget", value: byteCount(1<<20, func(c *Config) *int64 { return &c.Storage.IndexBudget })},
	{pattern: "storage.cache_budget", value: byteCount(1<<20, func(c *Config) *int64 { return &c.Storage.CacheBudget })},
	{pattern: "storage.checkpoint_bytes", value: byteCount(1<<20, func(c *Config) *int64 { return &c.Storage.CheckpointBytes })},
	{pattern: "storage.checkpoint_operations", value: ifSaid(1000, 1<<40, 1, func(c *Config) *int64 { return &c.Storage.CheckpointOperations })},
	{pattern: "storage.checkpoint_interval", value: ifSaid(100, maxMilliseconds, time.Millisecond, func(c *Config) *time.Duration { return &c.Storage.CheckpointEvery })},
	{pattern: "dead_letter_worker_publisher_confirm_timeout", value: ifSaid(1, maxMilliseconds, time.Millisecond, func(c *Config) *time.Duration { return &c.RetryHeld })},
}

// FindsLost says whether dead letters that lead nowhere go to the lost and found of their virtual host.
func (c *Config) FindsLost() bool {
	if c.LostAndFound != nil {
		return *c.LostAndFound
	}
	return !c.Strict // RabbitMQ drops them
}
