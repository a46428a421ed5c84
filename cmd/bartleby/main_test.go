package main

import (
	"bytes"
	"strings"
	"testing"

	"bartleby.mq/internal/config"
)

// The binary is what it is called: RabbitMQ's tool by that name, everything else otherwise.
func TestCommandByName(t *testing.T) {
	for path, want := range map[string]struct {
		name   string
		server bool
	}{
		"bartleby":                {"bartleby", true},
		"/usr/local/bin/bartleby": {"bartleby", true},
		"bartleby.exe":            {"bartleby", true},
		"/opt/bin/rabbitmqctl":    {"rabbitmqctl", false},
		"rabbitmqctl.exe":         {"rabbitmqctl", false},
		"RabbitMQCtl.EXE":         {"rabbitmqctl", false},
		"rabbitmq-diagnostics":    {"rabbitmq-diagnostics", false},
		"/bin/rabbitmq-plugins":   {"rabbitmq-plugins", false},
	} {
		root := command(path)
		found, _, err := root.Find([]string{"server"})
		server := err == nil && found.Name() == "server"
		if root.Name() != want.name || server != want.server {
			t.Errorf("%s is %s, with a server: %v; want %s, %v", path, root.Name(), server, want.name, want.server)
		}
	}
}

// Who names a data directory by the environment means the node on it, for every command.
func TestCommandsKnowTheDataDirectoryOfTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BARTLEBY_DATA_DIR", dir+"/missing")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"journal", "check"}, exitCannotLook, dir},
		{[]string{"demo"}, 1, "--amqp and --http"},
		{[]string{"demo", "--data-dir", dir}, 1, "--amqp and --http"},
	} {
		if code, out := say(t, c.args...); code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%v: exit %d, %q; want %d and %q", c.args, code, out, c.code, c.says)
		}
	}
}

// Every program says its version when it is asked by an option.
func TestVersionOption(t *testing.T) {
	for name, want := range map[string]string{
		"bartleby": "bartleby " + programVersion() + " (as RabbitMQ ", "rabbitmqctl": config.CompatibleVersion + "\n", "rabbitmqadmin": "rabbitmqadmin " + config.CompatibleVersion + "\n",
	} {
		for _, option := range []string{"--version", "-v"} {
			var out bytes.Buffer
			c := command(name)
			c.SetArgs([]string{option})
			c.SetOut(&out)
			if err := c.Execute(); err != nil || !strings.HasPrefix(out.String(), want) {
				t.Errorf("%s %s: %q, %v; want %q", name, option, out.String(), err, want)
			}
		}
	}
}
