package main

import "testing"

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
	} {
		root := command(path)
		found, _, err := root.Find([]string{"server"})
		server := err == nil && found.Name() == "server"
		if root.Name() != want.name || server != want.server {
			t.Errorf("%s is %s, with a server: %v; want %s, %v", path, root.Name(), server, want.name, want.server)
		}
	}
}

// A flag given wins over the file, which wins over the flag's default.
func TestAddresses(t *testing.T) {
	const byDefault = "127.0.0.1:5672"
	for _, tt := range []struct {
		file []string
		flag string
		said bool
		want []string
	}{
		{nil, byDefault, false, []string{byDefault}},
		{[]string{":5673"}, byDefault, false, []string{":5673"}},
		{[]string{":5673"}, "h:1,h:2", true, []string{"h:1", "h:2"}},
		{[]string{":5673"}, none, true, nil},
		{[]string{}, byDefault, false, []string{}},
	} {
		got := amqpAddresses(tt.file, tt.flag, tt.said)
		if len(got) != len(tt.want) {
			t.Errorf("%+v gives %q", tt, got)
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("%+v gives %q", tt, got)
			}
		}
	}
}
