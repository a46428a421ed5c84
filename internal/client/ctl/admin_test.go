package ctl_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/client/ctl"
	"bartleby.mq/test/certificate"
)

// adminWith runs rabbitmqadmin with that standard input.
func adminWith(input string, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	root := ctl.Command("rabbitmqadmin")
	root.SetArgs(args)
	root.SetIn(strings.NewReader(input))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code = ctl.Execute(context.Background(), root)
	return code, stdout.String(), stderr.String()
}

// admin runs rabbitmqadmin.
func admin(args ...string) (code int, out, errs string) { return adminWith("", args...) }

// writeFile writes a file into a directory that ends with the test.
func writeFile(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What test/rabbitmqadmin does not compare with RabbitMQ's own program: files, standard input, and errors where that one
// prints a stack.
func TestAdminFilesAndInput(t *testing.T) {
	url, _ := node(t)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("BARTLEBY_URL", url)
	dir := t.TempDir()
	for _, step := range []struct {
		input string
		args  string
		code  int
		want  string // in what is printed
	}{
		{"", "declare queue name=q", 0, "queue declared\n"},
		{"by standard input\xff", "publish routing_key=q", 0, "Message published\n"},
		{"", "publish routing_key=q payload=\xfe", 0, "Message published\n"},
		{"", "get queue=q payload_file=" + dir + "/no/payload ackmode=ack_requeue_false", 1, "no such file"},
		{"", "get queue=q payload_file=" + dir + "/payload requeue=false", 0, "| q           |          | 1             | 18            | False       |"},
		{"", "-f raw_json get queue=q requeue=false", 0, `"payload":"/g==","payload_bytes":1,"payload_encoding":"base64"`},
		{"", "get queue=q payload_file=" + dir + "/empty", 1, "the queue is empty"},
		{"", "export " + dir + "/definitions", 0, "Exported definitions for 127.0.0.1 to \"" + dir + "/definitions\"\n"},
		{"", "delete queue name=q", 0, "queue deleted\n"},
		{"", "import " + dir + "/definitions", 0, "Uploaded definitions from \"" + dir + "/definitions\" to 127.0.0.1. "},
		{"", "list queues name", 0, "| q    |\n"},
		{"", "import " + dir + "/none", 1, "*** open " + dir + "/none: no such file"},
		{"", "list", 1, "ERROR: Type not specified\n"},
		{"", "-f nonsense get queue=q", 1, "ERROR: Format nonsense not recognised\n"},
		{"", "-d deep list queues", 1, "ERROR: Depth deep is not a number\n"},
		{"", "declare queue name=", 1, "ERROR: Argument \"name\" must not be empty\n"},
		{"", "declare queue name=r arguments=[] queue_type=quorum", 1, "ERROR: Argument \"arguments\" must be a JSON object\n"},
		{"", "--colour list queues", 2, "rabbitmqadmin: error: unknown flag: --colour\n"},
		{"", "--bash-completion", 0, "# bash completion V2 for rabbitmqadmin"},
		{"", "__complete list q", 0, "queues\n"},
		{"", "help subcommands", 0, "declare user name=... password=... OR password_hash=... tags=... [hashing_algorithm=...]\n"},
		{"", "help config", 0, "[default]\n"},
	} {
		code, out, errs := adminWith(step.input, strings.Fields(step.args)...)
		if code != step.code || !strings.Contains(out+errs, step.want) {
			t.Errorf("rabbitmqadmin %s: exit %d\n%s%swant %d\n%s", step.args, code, out, errs, step.code, step.want)
		}
	}
	if payload, err := os.ReadFile(dir + "/payload"); err != nil || string(payload) != "by standard input\xff" {
		t.Errorf("payload file: %q, %v", payload, err)
	}
}

// An address, a user or a password comes from the command line, else from the section of the configuration file, else from
// the environment.
func TestAdminConfiguration(t *testing.T) {
	address, _ := node(t)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run("--url", address, "add_vhost", "v"); code != 0 {
		t.Fatal(errs)
	}
	text := "[default]\nhostname = nowhere.invalid\n\n# a node\n  [own]\n  HostName: " + at.Hostname() + "\n  port = " + at.Port() +
		"\n  username = guest\n  password = guest\n  format = tsv\n  verbose = False\n  declare_vhost = v\n; end\n[wrong]\ncolour = red\n[broken]\nhostname\n"
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	if err := os.WriteFile(filepath.Join(home, ".rabbitmqadmin.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	percent := writeFile(t, "percent.conf", "[default]\nhostname="+at.Hostname()+"\nport="+at.Port()+"\npassword=100%%\n")
	for _, step := range []struct {
		args string
		code int
		want string // at the beginning of what is printed, or somewhere in the error
	}{
		{"-N own list vhosts name", 0, "/\nv\n"},
		{"-N own declare queue name=q", 0, ""},
		{"-N own --vhost v list queues name", 0, "q\n"},
		{"-N own -f bash list vhosts name", 0, "/ v\n"},
		{"-N own -p wrong list vhosts name", 1, "*** Access refused: /api/vhosts?columns=name\n\n"},
		{"-N other list vhosts", 1, "Could not read section 'other' in config file"},
		{"-N wrong list vhosts", 1, "has the unknown key 'colour'"},
		{"-N broken list vhosts", 1, "line 17 is no KEY = VALUE"},
		{"-c none.conf list vhosts", 1, "Could not read config file 'none.conf'"},
		{"-c " + percent + " list vhosts", 1, "Access refused"},
		{"-c " + percent + " -p guest -f tsv list permissions", 0, "vhost\tconfigure\tread\tuser\twrite\n"},
		{"-H " + at.Hostname() + " -P " + at.Port() + " -f tsv -q list vhosts name", 0, "/\nv\n"},
		{"-U http://guest:guest@" + at.Host + "/ignored -f tsv -q list vhosts name", 0, "/\nv\n"},
		{"-U http://guest:wrong@" + at.Host + " list vhosts", 1, "Access refused"},
		{"-H " + at.Hostname() + " -P " + at.Port() + " --path-prefix /x list vhosts", 1, "*** Not found: /x/api/vhosts?columns=name,messages\n"},
		{"-H 127.0.0.1 -P 1 list vhosts", 1, "*** Could not connect: "},
	} {
		code, out, errs := admin(strings.Fields(step.args)...)
		if code != step.code || code == 0 && !strings.HasPrefix(out, step.want) || code != 0 && !strings.Contains(errs, step.want) {
			t.Errorf("rabbitmqadmin %s: exit %d\n%s%swant %d\n%s", step.args, code, out, errs, step.code, step.want)
		}
	}
}

// Over TLS the certificate must be right, unless an option says otherwise.
func TestAdminOverTLS(t *testing.T) {
	address, _ := node(t)
	t.Setenv("HOME", t.TempDir())
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	authority := certificate.NewAuthority(t, "ca")
	s := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(target))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, "node", time.Hour, func(c *x509.Certificate) { c.DNSNames = nil }).TLS()}}
	s.StartTLS()
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	ca := authority.Write(t, t.TempDir())
	for args, want := range map[string]int{
		"-H 127.0.0.1 -s":                          1, // not trusted
		"-H 127.0.0.1 -s -k":                       0,
		"-H 127.0.0.1 -s --ssl-ca-cert-file " + ca: 0,
		"-H localhost -s --ssl-ca-cert-file " + ca: 1, // another name
		"-H localhost -s --ssl-disable-hostname-verification --ssl-ca-cert-file " + ca: 0,
		"-H localhost -s --ssl-disable-hostname-verification":                          1,
		"-H 127.0.0.1 -s --ssl-ca-cert-file none.pem":                                  1,
		"-U https://guest:guest@127.0.0.1:" + at.Port() + " -k":                        0,
	} {
		code, out, errs := admin(append(strings.Fields(args), "-P", at.Port(), "-q", "list", "vhosts", "name")...)
		if code != want || code == 1 && !strings.HasPrefix(errs, "*** ") {
			t.Errorf("%s: exit %d, %s%s, want %d", args, code, out, errs, want)
		}
	}
}
