package ctl

// unsupportedVerbs are rabbitmqctl's that have no meaning here. They say so, rather
// than that nobody knows them.
func unsupportedVerbs() []verb {
	var list []verb
	for _, v := range []struct{ name, why string }{
		{"eval", "it runs Erlang code, and this node runs none"},
		{"eval_file", "it runs Erlang code, and this node runs none"},
		{"exec", "it runs Elixir code, and this program runs none"},
		{"start_app", "node and process are one: start the process"},
		{"stop_app", "node and process are one: use stop"},
		{"reset", "stop the node and move its data directory away"},
		{"force_reset", "stop the node and move its data directory away"},
		{"force_boot", "there is one node"},
		{"join_cluster", "there is one node"},
		{"forget_cluster_node", "there is one node"},
		{"trace_on", "there is no firehose: look at messages with the API's get and ackmode peek"},
		{"trace_off", "there is no firehose"},
		{"suspend_listeners", "stop the node"},
		{"resume_listeners", "start the node"},
		{"drain", "stop the node: it ends its connections in order"},
		{"revive", "start the node"},
		{"remote_shell", "it is a shell of Erlang, and this node runs none"},
		{"observer", "it is a tool of Erlang, and this node runs none"},
		{"update_cluster_nodes", "there is one node"},
		{"rename_cluster_node", "there is one node"},
		{"encode", "configuration values are not encrypted"},
		{"decode", "configuration values are not encrypted"},
	} {
		list = append(list, verb{
			name: v.name, max: -1, hidden: true,
			run: func(*invocation) error { return fail(exitUnavailable, "%s is not supported: %s", v.name, v.why) },
		})
	}
	return list
}
