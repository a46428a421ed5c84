package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bartleby.mq/test/certificate"
)

// run runs a command and returns what it prints and its error.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	c := command("bartleby")
	c.SetArgs(args)
	c.SetOut(&b)
	c.SetErr(&b)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.Execute()
	return b.String(), err
}

// prints runs a command, which succeeds if ok, and looks for texts in what it prints or in its error; with "!" before they must not be there.
func prints(t *testing.T, want []string, ok bool, args ...string) {
	t.Helper()
	out, err := run(t, args...)
	if err != nil {
		out += err.Error()
	}
	if (err == nil) != ok {
		t.Errorf("%v: %v", args, err)
	}
	for _, text := range want {
		unwanted, no := strings.CutPrefix(text, "!")
		if strings.Contains(out, unwanted) == no {
			t.Errorf("%v: %q, want %q", args, out, text)
		}
	}
}

// What "config check" and "config show" say of files, a directory of them, and TLS.
func TestConfigCommands(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := certificate.NewAuthority(t, "ca").Issue(t, "server", time.Hour, nil).Write(t, dir)
	good := write("10.conf", "heartbeat = 7\nnet_ticktime = 60\ndefault_pass = s3cret\nssl_options.certfile = "+cert+"\nssl_options.keyfile = "+key+"\n")
	write("20.conf", "heartbeat = 8\n")
	for _, tt := range []struct {
		args []string
		want []string // in what is printed or the error; "!" before: not in it
		ok   bool
	}{
		{[]string{"config", "check", good}, []string{"10.conf: line 2: net_ticktime: no effect: there is one node\n", "configuration is valid\n"}, true},
		{[]string{"config", "show", good}, []string{"heartbeat = 7\n", "default_pass = ********\n", "frame_max = 131072\n", "!s3cret"}, true},
		{[]string{"config", "show", dir}, []string{"heartbeat = 8\n", "!heartbeat = 7"}, true},
		{[]string{"config", "check", filepath.Join(dir, "none.conf")}, []string{"there is no such file"}, false},
		{[]string{"config", "check", write("bad", "hearbeat = 3")}, []string{"line 1: hearbeat: unknown key; did you mean heartbeat?"}, false},
		{[]string{"config", "check", write("needs", "listeners.ssl.default = 5671")}, []string{"needs ssl_options.certfile"}, false},
		{[]string{"config", "check"}, []string{"no file was read: ", "configuration is valid\n"}, true},
		{[]string{"config", "check", good}, []string{"read: " + good + "\n"}, true},
		{[]string{"config", "check", dir}, []string{"read: " + good + "\n", "read: " + filepath.Join(dir, "20.conf") + "\n"}, true},
		// All of it in one pass.
		{[]string{"config", "check", write("all", "hearbeat = 3\nnet_ticktime = 60\nload_definitions = /lost.json\nlisteners.ssl.default = 5671\nssl_options.certfile = /lost.crt\nssl_options.keyfile = /lost.key\n"+
			"ssl_options.cacertfile = /lost.ca\nssl_options.verify = verify_peer\nlisteners.tcp.default = 15672")}, []string{
			"unknown key", "net_ticktime: no effect", "/lost.json: there is no such file", "ssl_options.certfile: ", "ssl_options.keyfile: ", "ssl_options.cacertfile: ", "two listeners at port 15672",
		}, false},
		{[]string{"config", "check", write("ports", "listeners.tcp.1 = 127.0.0.1:5673\nlisteners.tcp.2 = ::1:5673\nprometheus.tcp.port = 5673")}, []string{"prometheus.tcp and listeners.tcp: two listeners at port 5673"}, false},
		{[]string{"config", "check", write("places", "listeners.tcp.1 = 127.0.0.1:5673\nlisteners.tcp.2 = ::1:5673\nmanagement.tcp.port = 15673")}, []string{"configuration is valid"}, true},
		{[]string{"config", "check", write("doubtful", "vm_memory_high_watermark.absolute = 1GB\nvm_memory_high_watermark.relative = 0.5\ndefault_user_tags.policymakers = true\nssl_options.cacertfile = /no/such")}, []string{
			"line 1: vm_memory_high_watermark.absolute: no effect: vm_memory_high_watermark.relative, which comes later, counts", "policymakers: no effect: the tag gives no rights; did you mean default_user_tags.policymaker?",
			"ssl_options: no effect: no listener uses it", "!relative: no effect", "configuration is valid",
		}, true},
		{[]string{"config", "check", write("pair", "ssl_options.certfile = "+cert+"\nssl_options.keyfile = "+cert)}, []string{"ssl_options: "}, false},
	} {
		prints(t, tt.want, tt.ok, tt.args...)
	}
}

// A node reads what RabbitMQ reads beside its main file, in RabbitMQ's order, and names what it passes over.
func TestFilesBesideTheMainFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	main := write("a/rabbitmq.conf", "heartbeat = 1\nchannel_max = 1\nframe_max = 5000\nlink_max_per_session = 1\n")
	write("a/conf.d/20.conf", "channel_max = 3\n")
	write("a/conf.d/10.conf", "channel_max = 2\nframe_max = 6000\nlink_max_per_session = 2\n")
	write("a/conf.d/readme", "not read")
	write("a/advanced.config", "[{rabbit, [{link_max_per_session, 3},\n{hipe_compile, true},\n{nothing, 1}]}].")
	write("a/rabbitmq-env.conf", "NODENAME=x\n")
	write("a/enabled_plugins", "[rabbitmq_management].\n")
	old := write("b/rabbitmq.config", "[{rabbit, [{heartbeat, 9}]}].")
	write("b/rabbitmq.conf", "heartbeat = 8\n")
	only := write("c/advanced.config", "[{rabbit, [{heartbeat, 7}]}].")
	broken := write("d/advanced.config", "[{rabbit, [\n{heartbeat 7}]}].")
	write("d/rabbitmq.conf", "")
	lost := write("e/rabbitmq.conf", "load_definitions = "+filepath.ToSlash(filepath.Join(dir, "lost.json"))+"\n")
	for _, tt := range []struct {
		args []string
		env  map[string]string
		want []string // in what is printed or the error; "!" before: not in it
		ok   bool
	}{
		{[]string{"show", main}, nil, []string{"heartbeat = 1\n", "channel_max = 3\n", "frame_max = 6000\n", "link_max_per_session = 3\n"}, true},
		{[]string{"show", filepath.Dir(main)}, nil, []string{"heartbeat = 1\n", "channel_max = 3\n", "link_max_per_session = 3\n"}, true},
		{[]string{"check", main}, nil, []string{
			"rabbitmq-env.conf: no effect: scripts of the shell are not read", "enabled_plugins: no effect: there are no plugins",
			"advanced.config: line 2: hipe_compile: no effect: there is no Erlang VM\n", "advanced.config: line 3: rabbit.nothing: no effect: rabbitmq.conf has no name",
			"configuration is valid",
		}, true},
		{[]string{"show"}, map[string]string{"RABBITMQ_CONFIG_FILE": filepath.Join(dir, "a/rabbitmq")}, []string{"heartbeat = 1\n", "channel_max = 3\n", "link_max_per_session = 3\n"}, true},
		{[]string{"show"}, map[string]string{"RABBITMQ_CONFIG_FILE": main, "RABBITMQ_CONFIG_FILES": filepath.Join(dir, "a/conf.d/1*.conf"), "RABBITMQ_ADVANCED_CONFIG_FILE": filepath.Join(dir, "c/advanced")},
			[]string{"heartbeat = 7\n", "channel_max = 2\n", "link_max_per_session = 2\n"}, true},
		{[]string{"show"}, map[string]string{"RABBITMQ_CONFIG_FILE": filepath.Join(dir, "b/rabbitmq")}, []string{"heartbeat = 9\n"}, true},
		{[]string{"check", filepath.Dir(old)}, nil, []string{"rabbitmq.conf: no effect: rabbitmq.config is there, which RabbitMQ reads instead"}, true},
		{[]string{"show", filepath.Dir(old)}, nil, []string{"heartbeat = 9\n"}, true},
		{[]string{"check", filepath.Join(dir, "b/rabbitmq.conf")}, nil, []string{"rabbitmq.config: no effect: the other form of this file, rabbitmq.conf, is read"}, true},
		{[]string{"show", only}, nil, []string{"heartbeat = 7\n"}, true},
		{[]string{"show"}, map[string]string{"RABBITMQ_CONFIG_FILE": filepath.Join(dir, "c/rabbitmq")}, []string{"heartbeat = 7\n"}, true},
		{[]string{"show"}, map[string]string{"RABBITMQ_CONFIG_FILE": filepath.Join(dir, "none/rabbitmq")}, []string{"there is no such file"}, false},
		{[]string{"check", filepath.Join(dir, "d")}, nil, []string{broken + ": line 2: "}, false},
		{[]string{"check", lost}, nil, []string{"load_definitions: ", "lost.json: there is no such file", "!valid"}, false},
		{[]string{"convert", old}, nil, []string{"heartbeat = 9\n"}, true},
		{[]string{"convert", main}, nil, []string{"heartbeat = 1\n"}, true},
		{[]string{"convert", broken}, nil, []string{"line 2: "}, false},
		{[]string{"convert", write("f/rabbitmq.config", "[{rabbit, [{heartbeat, 5}, {default_pass, <<\"pa'ss # word\">>}]}].")}, nil, []string{"heartbeat = 5\nnot converted: ", "cannot be converted", "default_pass", "!pa'ss"}, false},
	} {
		for _, name := range []string{"RABBITMQ_CONFIG_FILE", "RABBITMQ_CONFIG_FILES", "RABBITMQ_ADVANCED_CONFIG_FILE"} {
			t.Setenv(name, tt.env[name])
		}
		t.Logf("with %v", tt.env)
		prints(t, tt.want, tt.ok, append([]string{"config"}, tt.args...)...)
	}
}
