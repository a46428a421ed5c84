package config

import "slices"

// keys are all that are known (BR-18.1). The first that matches counts.
var keys = slices.Concat(
	networkKeys, tlsKeys(true, "ssl_options", func(c *Config) *TLS { return &c.TLS }),
	tlsKeys(true, "management.ssl", func(c *Config) *TLS { return &c.ManagementTLS.TLS }),
	tlsKeys(true, "management.listener.ssl_opts", func(c *Config) *TLS { return &c.ManagementListener.TLS }),
	tlsKeys(true, "prometheus.ssl", func(c *Config) *TLS { return &c.PrometheusTLS.TLS }),
	tlsKeys(true, "web_amqp.ssl", func(c *Config) *TLS { return &c.WebAMQPTLS.TLS }),
	tlsKeys(false, "auth_http.ssl_options", func(c *Config) *TLS { return &c.Auth.HTTP.TLS }),
	tlsKeys(false, "definitions.tls", func(c *Config) *TLS { return &c.Definitions.TLS }),
	limitKeys, authKeys, firstStartKeys, definitionKeys, logKeys, ownKeys, eventKeys, apsaraKeys, openAPIKeys, webKeys, refusedKeys, idleKeys,
)
