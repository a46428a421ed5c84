package config

import (
	"errors"
	"strconv"
)

// EventExchange has the keys of RabbitMQ's plugin rabbitmq_event_exchange, and whether there is such an exchange.
type EventExchange struct {
	Enabled *bool  // event_exchange.enabled; nil: unless compatibility.strict
	VHost   string // event_exchange.vhost; "": the default one
}

// EventsEnabled says whether there is an exchange for events.
func (c *Config) EventsEnabled() bool {
	if c.EventExchange.Enabled != nil {
		return *c.EventExchange.Enabled
	}
	return !c.Strict // without the plugin RabbitMQ has none
}

// EventsVHost is the virtual host of the exchange for events.
func (c *Config) EventsVHost() string {
	if c.EventExchange.VHost != "" {
		return c.EventExchange.VHost
	}
	return c.FirstStart.VHost
}

var eventKeys = []key{
	{pattern: "event_exchange.enabled", value: value{
		set: func(p *parser, _, value string) (string, error) {
			on, err := boolean(value)
			if err == nil {
				p.c.EventExchange.Enabled = &on
			}
			return "", err
		},
		show: func(c *Config) []named {
			if c.EventExchange.Enabled == nil {
				return nil // it goes by another key
			}
			return one(strconv.FormatBool(*c.EventExchange.Enabled))
		},
	}},
	{pattern: "webhooks.allow_local", value: flag(func(c *Config) *bool { return &c.WebhooksAllowLocal })},
	{pattern: "event_exchange.vhost", value: text(func(c *Config) *string { return &c.EventExchange.VHost })},
	{pattern: "event_exchange.protocol", value: value{
		set: func(_ *parser, _, value string) (string, error) {
			switch value {
			case "amqp_0_9_1":
				return "", nil
			case "amqp_1_0":
				return "events are messages of AMQP 0-9-1, which clients of AMQP 1.0 can read too", nil
			}
			return "", errors.New("is not amqp_0_9_1 or amqp_1_0")
		},
		show: func(*Config) []named { return nil },
	}},
}
