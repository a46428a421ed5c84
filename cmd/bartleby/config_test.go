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
		{[]string{"config", "check", write("pair", "ssl_options.certfile = "+cert+"\nssl_options.keyfile = "+cert)}, []string{"ssl_options: "}, false},
	} {
		out, err := run(t, tt.args...)
		if err != nil {
			out += err.Error()
		}
		if (err == nil) != tt.ok {
			t.Errorf("%v: %v", tt.args, err)
		}
		for _, want := range tt.want {
			unwanted, no := strings.CutPrefix(want, "!")
			if strings.Contains(out, unwanted) == no {
				t.Errorf("%v: %q, want %q", tt.args, out, want)
			}
		}
	}
}
