package config

import (
	cmdline "flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fate is what becomes of a key: one of three.
func fate(k *key) string {
	switch {
	case k.set == nil:
		return "idle"
	case k.refuses:
		return "refused"
	}
	return "obeyed"
}

var updateFates = cmdline.Bool("fates", false, "write what becomes of each key of RabbitMQ")

// Every key of RabbitMQ 4.3.6 has exactly one fate, which testdata/rabbitmq-4.3.6-keys.txt has beside its name ($name stands for any
// name): obeyed, refused, or idle for a reason of its own. A key that protects or moves a port is never idle.
func TestEachKeyOfRabbitMQHasOneFate(t *testing.T) {
	const file = "testdata/rabbitmq-4.3.6-keys.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	protects := regexp.MustCompile(`^(management|prometheus|auth_http|definitions|web_amqp|ssl_options|listeners|trust_store|http_dispatch|default_|loopback|proxy|login|credential_validator|anonymous|auth_backends|auth_mechanisms)` +
		`.*(\.(port|ip|ssl|path|path_prefix|listener|verify|fail_if_no_peer_cert|cacertfile|certfile|keyfile|crl_check|depth|versions\..*|password|enabled|disabled|policy)|(basic_auth|max_connections|_session_timeout))$`)
	var now strings.Builder
	for line := range strings.Lines(string(text)) {
		name, said, _ := strings.Cut(strings.TrimSpace(line), " ")
		segments := segmentsOf(strings.ReplaceAll(name, "$", "a"))
		var found []*key
		for i := range keys {
			if _, ok := keys[i].match(segments); ok {
				found = append(found, &keys[i])
			}
		}
		if len(found) != 1 {
			t.Errorf("%s has %d entries, want 1", name, len(found))
			continue
		}
		is := fate(found[0])
		fmt.Fprintln(&now, name, is)
		if is != said && !*updateFates {
			t.Errorf("%s is %s, want %s", name, is, said)
		}
		if is == "idle" && (found[0].idle == "" || protects.MatchString(name) && name != "management.csp.policy" && !strings.HasPrefix(name, "management.oauth") && name != "management.restrictions.quorum_queue_replica_operations.disabled") {
			t.Errorf("%s protects the node or moves a port, and is idle: %q", name, found[0].idle)
		}
	}
	if *updateFates {
		if err := os.WriteFile(file, []byte(now.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// No key of ours hides another, and none ends in a wildcard for all below it: a typing error there would be taken.
func TestKeysAreWrittenOut(t *testing.T) {
	for i := range keys {
		k := &keys[i]
		if strings.Contains(k.pattern, "**") || (k.set == nil) == (k.idle == "") {
			t.Errorf("%s: a wildcard, or neither a value nor a reason", k.pattern)
		}
		for j := range keys[:i] {
			if _, ok := keys[j].match(strings.Split(k.pattern, ".")); ok {
				t.Errorf("%s is hidden by %s", k.pattern, keys[j].pattern)
			}
		}
	}
}

// Reasons are true of today: nothing that is there is called missing.
func TestReasonsAreOfToday(t *testing.T) {
	for i := range keys {
		if reason := keys[i].idle; strings.Contains(reason, "yet") {
			t.Errorf("%s: %q", keys[i].pattern, reason)
		}
	}
}

// What a node shows of its configuration has no secrets in it.
func TestSecretsAreMasked(t *testing.T) {
	c := Default()
	const text = "default_pass = s3cret\nssl_options.password = s3cret\nmanagement.ssl.password = s3cret\nanonymous_login_pass = s3cret\n"
	if _, err := Parse(&c, text); err != nil {
		t.Fatal(err)
	}
	masked := 0
	for _, s := range c.Settings() {
		if strings.Contains(s.String(), "s3cret") {
			t.Errorf("%s shows the secret", s.Key)
		}
		if strings.HasSuffix(s.String(), Masked) {
			masked++
		}
	}
	if masked != 4 {
		t.Errorf("%d settings are masked, want 4", masked)
	}
	if _, err := Parse(&c, "default_pass = encrypted:s3cret"); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error is %v, want one without the secret", err)
	}
}

// Keys that need each other are looked at when all are read.
func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"listeners.ssl.default = 5671": "listeners.ssl.*: a listener with TLS needs ssl_options.certfile and ssl_options.keyfile",
		"listeners.ssl.default = 5671\nssl_options.certfile = c\nssl_options.keyfile = k": "",
		"management.ssl.port = 15671":    "management.ssl.port: a listener with TLS needs management.ssl.certfile and management.ssl.keyfile",
		"management.ssl.certfile = c":    "management.ssl.port: a listener with TLS needs management.ssl.certfile and management.ssl.keyfile",
		"management.listener.ssl = true": "management.listener.ssl: a listener with TLS needs management.listener.ssl_opts.certfile and management.listener.ssl_opts.keyfile",
		"management.listener.ssl = true\nssl_options.certfile = c\nssl_options.keyfile = k": "",
		"management.listener.port = 15673\nmanagement.tcp.port = 15672":                     "management.listener: management.tcp.* sets this listener too; keep one of them",
		"ssl_options.verify = verify_peer":                                                  "ssl_options.verify: verify_peer needs ssl_options.cacertfile, the authorities whose certificates are trusted",
		"ssl_options.fail_if_no_peer_cert = true":                                           "ssl_options.fail_if_no_peer_cert: needs ssl_options.verify = verify_peer",
		"apsaramq.consumer_timeout = 43200000":                                              "apsaramq.consumer_timeout: 43200000 ms are more than apsaramq.max_consumer_timeout allows, 10800000 ms",
		"apsaramq.consumer_timeout = 43200000\napsaramq.max_consumer_timeout = 43200000":    "",
		"auth_mechanisms.1 = EXTERNAL":                                                      "auth_mechanisms: EXTERNAL needs ssl_options.verify = verify_peer: an unverified certificate proves nothing",
	} {
		c := Default()
		if _, err := Parse(&c, text); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := c.Check(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// What changes between two files is known, and what of it a running node takes over.
func TestChanged(t *testing.T) {
	old, next := Default(), Default()
	if _, err := Parse(&old, "log.file = a.log\nframe_max = 4096"); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(&next, "frame_max = 8192\nlog.file = a.log\ncluster_name = c\nlog.console.level = debug"); err != nil {
		t.Fatal(err)
	}
	var live, restart []string
	for _, s := range Changed(&old, &next) {
		if s.Live {
			live = append(live, s.Key)
		} else {
			restart = append(restart, s.Key)
		}
	}
	if got := strings.Join(live, " "); got != "frame_max log.console.level" {
		t.Errorf("taken over: %s", got)
	}
	if got := strings.Join(restart, " "); got != "cluster_name" {
		t.Errorf("for the next start: %s", got)
	}
}

// $(NAME) is what the environment says.
func TestInterpolation(t *testing.T) {
	getenv := func(name string) string { return map[string]string{"USER_NAME": "ada", "HOST": "h"}[name] }
	c := Default()
	if _, err := ParseFiles(&c, getenv, File{Name: "a", Text: "default_user = $(USER_NAME)\ncluster_name = x-$(HOST)-$(USER_NAME)\ndefault_pass = '$(HOST)'"}); err != nil {
		t.Fatal(err)
	}
	if c.FirstStart.User != "ada" || c.ClusterName != "x-h-ada" || c.FirstStart.Password != "$(HOST)" {
		t.Errorf("got %q, %q, %q", c.FirstStart.User, c.ClusterName, c.FirstStart.Password)
	}
	for _, text := range []string{"default_user = $(NOBODY)", "default_user = $(USER_NAME"} {
		if _, err := ParseFiles(&c, getenv, File{Name: "a", Text: text}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// Of several files the last wins, key by key, and errors say which.
func TestFiles(t *testing.T) {
	c := Default()
	warnings, err := ParseFiles(&c, nil, File{Name: "10.conf", Text: "listeners.tcp.default = 1\nheartbeat = 5"}, File{Name: "20.conf", Text: "\nlisteners.tcp.default = 2\nnet_ticktime = 3"})
	if err != nil || len(c.AMQP) != 1 || c.AMQP[0] != ":2" || len(warnings) != 1 || warnings[0].File != "20.conf" || warnings[0].Line != 3 {
		t.Errorf("%v, %v, listeners %v", warnings, err, c.AMQP)
	}
	if _, err = ParseFiles(&c, nil, File{Name: "10.conf", Text: "x = 1"}, File{Name: "20.conf", Text: "y"}); err == nil || !strings.Contains(err.Error(), "10.conf: line 1: x: ") || !strings.Contains(err.Error(), "20.conf: line 1: ") {
		t.Errorf("got %v", err)
	}
}

// A running node takes over what it can, and keeps the rest as it was.
func TestTakeOver(t *testing.T) {
	old, next := Default(), Default()
	old.NodeName = "n@h"
	if _, err := Parse(&old, "cluster_name = a\nframe_max = 4096"); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(&next, "cluster_name = b\nconnection_max = 5\ndisk_free_limit.relative = 2.0"); err != nil {
		t.Fatal(err)
	}
	now, waiting, err := TakeOver(&old, &next)
	if err != nil {
		t.Fatal(err)
	}
	want := old
	want.FrameMax, want.MaxConnections, want.Disk = 131072, 5, Watermark{Relative: 2}
	if diff := cmp.Diff(want, now); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(waiting) != 1 || waiting[0].Key != "cluster_name" || waiting[0].Value != "b" {
		t.Errorf("waiting are %v", waiting)
	}
}
