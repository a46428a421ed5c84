package config

// Environment takes over what container users set in the environment (BR-18.2).
// It acts on an empty node only, as everything in FirstStart. A configuration file
// read afterwards wins.
func Environment(c *Config, getenv func(string) string) {
	for name, field := range map[string]*string{
		"RABBITMQ_DEFAULT_USER":  &c.FirstStart.User,
		"RABBITMQ_DEFAULT_PASS":  &c.FirstStart.Password,
		"RABBITMQ_DEFAULT_VHOST": &c.FirstStart.VHost,
		"RABBITMQ_NODENAME":      &c.NodeName,
	} {
		if v := getenv(name); v != "" {
			*field = v
		}
	}
}
