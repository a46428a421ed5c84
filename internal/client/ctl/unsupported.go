package ctl

// unsupportedVerbs are verbs of rabbitmqctl that have no meaning here. They print the
// reason instead of "not found".
func unsupportedVerbs() []verb {
	var list []verb
	for _, v := range []struct{ name, why string }{
		{"eval_file", "it runs Erlang code, and this node has no Erlang VM"},
		{"exec", "it runs Elixir code, and this program has no Erlang VM"},
		{"reset", "stop the node and move its data directory away"},
		{"force_reset", "stop the node and move its data directory away"},
		{"force_boot", "there is one node"},
		{"join_cluster", "there is one node"},
		{"forget_cluster_node", "there is one node"},
		{"suspend_listeners", "stop the node"},
		{"resume_listeners", "start the node"},
		{"drain", "stop the node: it closes its connections in order"},
		{"revive", "start the node"},
		{"remote_shell", "it is an Erlang shell, and this node has no Erlang VM"},
		{"observer", "it is an Erlang tool, and this node has no Erlang VM"},
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
