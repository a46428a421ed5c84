package ctl_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/office"
)

// officeNode is a node whose queues hold dead letters.
func officeNode(t *testing.T, more ...func(*office.Options)) {
	t.Helper()
	url, b := node(t, func(o *api.Options) {
		with := office.Options{Broker: o.Broker}
		for _, f := range more {
			f(&with)
		}
		f, err := office.New(with)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		o.Office = f
	})
	t.Setenv("BARTLEBY_URL", url)
	admin := func(args ...string) { tool(t, append([]string{"rabbitmqadmin"}, args...)...) }
	for _, name := range []string{"orders", "bills"} {
		admin("declare", "queue", "name="+name+".dead")
		admin("declare", "queue", "name="+name, `arguments={"x-dead-letter-exchange":"","x-dead-letter-routing-key":"`+name+`.dead"}`)
	}
	die := func(queue, body, headers string) {
		admin("publish", "routing_key="+queue, "payload="+body, `properties={"headers":`+headers+`}`)
		admin("get", "queue="+queue, "ackmode=reject_requeue_false")
	}
	for _, n := range []string{"1", "2", "3"} {
		die("orders", n, `{"tenant":"t`+n+`","x-exception-message":"no customer `+n+`","x-exception-stacktrace":"com.shop.NoCustomerException: no customer\n\tat a.B"}`)
	}
	die("bills", "evil\x1b[31m", `{}`)
	b.CountQueues() // the dead are where they go
}

// What the commands print is what somebody at night needs: counts and causes, aligned.
func TestDLQ(t *testing.T) {
	officeNode(t)
	ours := func(args string) string { return tool(t, append([]string{"bartleby"}, strings.Fields(args)...)...) }
	ages := regexp.MustCompile(`\b\d+s\b`)
	dates := regexp.MustCompile(`\(\d{4}-[^)]*\)`)
	clean := func(text string) string { return dates.ReplaceAllString(ages.ReplaceAllString(text, "0s"), "(DATE)") }
	var page struct{ Items []struct{ ID string } }
	if err := json.Unmarshal([]byte(ours("dlq groups --json")), &page); err != nil || len(page.Items) != 2 {
		t.Fatalf("%v: %s", err, ours("dlq groups --json"))
	}
	g := page.Items[0].ID
	var row struct{ ID string }
	if err := json.Unmarshal([]byte(ours("dlq search orders.dead --json --limit 1 --oldest")), &row); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"dlq ls", `Queues with dead letters ...
QUEUE        LETTERS  OLDEST  5M  1H  24H  DIED IN
bills.dead         1      0s   1   1    1  bills
orders.dead        3      0s   3   3    3  orders

Why they died: bartleby dlq groups
`},
		{"dlq retries", "Queues in which messages wait for a retry ...\nNo message waits for a retry.\n"},
		{"dlq retries -p nowhere", "Virtual host 'nowhere' does not exist\nexit 65\n"},
		{"dlq ls -p nowhere", "Virtual host 'nowhere' does not exist\nexit 65\n"},
		{"dlq groups", `4 dead letters in 2 groups, of all queues ...
GROUP  LETTERS  LAST  FIRST  DIED IN  REASON    ERROR                               IN           STATE
` + g[:4] + `         3    0s     0s  orders   rejected  NoCustomerException: no customer #  orders.dead  new
` + page.Items[1].ID[:4] + `         1    0s     0s  bills    rejected                                      bills.dead   new

One of its letters: bartleby dlq show ` + g[:4] + "\n"},
		{"dlq search -q orders.dead --count --older-than 1h", "0\nexit 1\n"},
		{"dlq search -q orders.dead --count", "3\n"},
		{"dlq search -q orders.dead --count --source orders --source orders --where header.tenant --where header.tenant=t1", "1\n"},
		{"dlq search orders.dead --reason tired", "Error:\nfilter 'reason': 'tired' is no reason; it must be rejected, expired, maxlen or delivery_limit\nexit 65\n"},
		{"dlq search nowhere", "Error:\nno queue 'nowhere' in vhost '/'\nexit 65\n"},
		{"dlq show zzzz", "Error:\nNo group of dead letters has an id that begins with 'zzzz'. 'bartleby dlq groups' lists them.\nexit 65\n"},
	} {
		got := clean(ours(c.args))
		if got != c.want {
			t.Errorf("%s\n%swant\n%s", c.args, got, c.want)
		}
	}
	for args, has := range map[string]string{
		"dlq groups -s --formatter csv --reason rejected bills.dead":               `"` + page.Items[1].ID + `","1",`,
		"dlq search -s orders.dead --group " + g[:5] + " --where header.tenant=t2": "no customer 2",
		"dlq show orders.dead 1.zzz":                                               "no letter of queue 'orders.dead' in vhost '/' has the id '1.zzz'\nexit 65\n",
	} {
		if got := ours(args); !strings.Contains(got, has) || strings.Count(got, "\n") > 3 {
			t.Errorf("%s\n%swant %q", args, got, has)
		}
	}
	if got := ours("dlq search bills.dead"); !strings.Contains(got, "\n1 letter, of 1 message.\n") {
		t.Error(got)
	}
	if got := ours("dlq move bills.dead --to-queue orders.dead --dry-run"); !strings.Contains(got, "1 of 1 message would be moved.\n") {
		t.Error(got)
	}
	show := clean(ours("dlq show " + g[:4]))
	for _, want := range []string{
		"The letter that died last of 3 in group " + g, "died          0s ago (DATE), rejected in queue 'orders', once", "class         com.shop.NoCustomerException", "error         no customer 3",
		"a replay      would put it into orders", "  tenant: \"t3\"", "Detail:\ncom.shop.NoCustomerException: no customer", "\nBody (json):\n3\n",
	} {
		if !strings.Contains(show, want) {
			t.Errorf("dlq show\n%swant %q", show, want)
		}
	}
	if again := clean(ours("dlq show orders.dead " + row.ID)); !strings.Contains(again, "no customer 1") {
		t.Errorf("%s", again)
	}
	// What a client has written does not steer the terminal.
	if got := ours("dlq search bills.dead") + ours("dlq show "+page.Items[1].ID); strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
	for args, has := range map[string]string{
		"dlq discard orders.dead --source orders --source bills --dry-run": "--source is given twice, with different values.", "dlq search orders.dead --error a --error b": "--error is given twice",
		"dlq groups -p / --vhost shop": "--vhost is given twice", "replay orders.dead --reason expired --reason rejected --dry-run": "--reason is given twice", "rules ls -p a -p b": "--vhost is given twice",
		"dlq groups --limit abc": "--limit 'abc' must be a whole number\n", "dlq replay q --stagger 5": "--stagger '5' must be a time such as 200ms", "dlq replay q --max-replays -1": "--max-replays '-1' must be a whole number, not negative", "dlq ls -t soon": "--timeout 'soon' must be a number\n",
		"dlq replay orders.dead --at 2020-01-01T00:00:00Z --dry-run": "--at '2020-01-01T00:00:00Z' is past",
		"dlq": "dlq groups", "dlq grops": "Did you mean 'dlq groups'?", "dlq groups --reason tired": "--reason must be one of rejected, expired, maxlen, delivery_limit, not 'tired'", "dlq groups --state old": "--state must be one of new,", "dlq groups --limit 0": "bartleby [--node <node>] [--longnames] [--quiet] dlq groups", "dlq search": "not enough arguments", "dlq show a b c": "too many arguments",
	} {
		if got := ours(args); !strings.Contains(got, has) || args != "dlq" && !strings.HasSuffix(got, "exit 64\n") {
			t.Errorf("%s\n%swant %q", args, got, has)
		}
	}
	if got := ours("list_queues -s name messages"); got != "bills\t0\nbills.dead\t1\norders\t0\norders.dead\t3\n" {
		t.Errorf("looking has changed the queues: %s", got)
	}
}

// Who has seen a queue in a list of all virtual hosts and does not name its own is told which it is.
func TestAQueueOfAnotherVHostIsPointedAt(t *testing.T) {
	officeNode(t)
	for _, args := range [][]string{
		{"rabbitmqctl", "add_vhost", "shop"}, {"rabbitmqctl", "set_permissions", "-p", "shop", "guest", ".*", ".*", ".*"}, {"rabbitmqadmin", "-V", "shop", "declare", "queue", "name=there.dead"},
		{"rabbitmqadmin", "-V", "shop", "declare", "queue", "name=there", `arguments={"x-dead-letter-exchange":"","x-dead-letter-routing-key":"there.dead"}`},
	} {
		tool(t, args...)
	}
	for _, c := range []struct{ args, want string }{
		{"dlq search there.dead", "Error:\nno queue 'there.dead' in vhost '/'; there is one in vhost 'shop': add --vhost 'shop'\nexit 65\n"},
		{"dlq replay there.dead --dry-run", "Error:\nno queue 'there.dead' in vhost '/'; there is one in vhost 'shop': add --vhost 'shop'\nexit 65\n"},
		{"dlq search there.dead --vhost /", "Error:\nno queue 'there.dead' in vhost '/'\nexit 65\n"},
	} {
		if got := tool(t, append([]string{"bartleby"}, strings.Fields(c.args)...)...); got != c.want {
			t.Errorf("%s\n%swant\n%s", c.args, got, c.want)
		}
	}
}

// A dry run, a job with its outcomes, and what is refused.
func TestDLQJobs(t *testing.T) {
	officeNode(t)
	ours := func(args string) string { return tool(t, append([]string{"bartleby"}, strings.Fields(args)...)...) }
	if got := ours("dlq replay orders.dead --error customer --dry-run"); !strings.Contains(got, "3 of 3 messages would be moved by replay") || !strings.Contains(got, "3  exchange '' key 'orders' -> orders") || !strings.Contains(got, "queue 'orders': letters wait there: nobody consumes it") {
		t.Error(got)
	}
	if got := ours("dlq replay orders.dead --where header.tenant=t1 --because mended --yes --watch"); !strings.Contains(got, "done: 1 of 1 moved, 1 waiting") {
		t.Error(got)
	}
	if got := ours("dlq discard orders.dead --yes --watch"); !strings.Contains(got, "done: 2 of 2 moved") {
		t.Error(got)
	}
	if got := ours("dlq jobs"); !strings.Contains(got, "discard of orders.dead in /: job 2 done: 2 of 2 moved") || !strings.Contains(got, "replay of orders.dead in /: job 1 done") {
		t.Error(got)
	}
	if got := ours("dlq job 1"); !strings.Contains(got, "job 1 done") {
		t.Error(got)
	}
}

// What waits for a retry, and in how long it comes back.
func TestDLQRetries(t *testing.T) {
	officeNode(t)
	tool(t, "rabbitmqadmin", "declare", "queue", "name=slow", `arguments={"x-delayed-retry-type":"all","x-delayed-retry-min":3600000}`)
	tool(t, "rabbitmqadmin", "publish", "routing_key=slow", "payload=m")
	tool(t, "rabbitmqadmin", "get", "queue=slow", "ackmode=reject_requeue_true")
	const want = `^Queues in which messages wait for a retry ...
QUEUE  WAITING  NEXT  ALL IN
slow         1   \d+m     60m
$`
	if got := tool(t, "bartleby", "dlq", "retries"); !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("%s\nwant %s", got, want)
	}
	var rows []struct{ Waiting int }
	if err := json.Unmarshal([]byte(tool(t, "bartleby", "dlq", "retries", "--json")), &rows); err != nil || len(rows) != 1 || rows[0].Waiting != 1 {
		t.Errorf("%+v, %v", rows, err)
	}
}

// An edit shows what differs; letters are restored, exported to a file and imported again.
func TestDLQEditsAndTransfers(t *testing.T) {
	officeNode(t)
	ours := func(args ...string) string { return tool(t, append([]string{"bartleby"}, args...)...) }
	var row struct{ ID string }
	if err := json.Unmarshal([]byte(ours("dlq", "search", "orders.dead", "--json", "--limit", "1", "--oldest")), &row); err != nil {
		t.Fatal(err)
	}
	edit := []string{"dlq", "edit", "orders.dead", row.ID, "--set-header", "tenant=t9", "--unset-header", "x-exception-stacktrace", "--set-property", "type=5", "--then", "stay"}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{append(edit, "--dry-run"), []string{"header.tenant\n  - \"t1\"\n  + \"t9\"\n", "property.type\n  - (none)\n  + \"5\"\n", "1 of 1 message would be moved by edit"}},
		{edit, []string{"Run the command again with --yes", "exit 64"}},
		{append(edit, "--yes", "--watch"), []string{"done: 1 of 1 moved\n"}},
		{[]string{"dlq", "search", "orders.dead", "--where", "header.tenant=t9", "--type", "5", "--count"}, []string{"1\n"}},
		{[]string{"dlq", "edit", "orders.dead", row.ID, "--set-header", "a=1", "--yes"}, []string{"has left queue", "exit 65"}},
		{[]string{"dlq", "edit", "orders.dead", row.ID, "--set-header", "a"}, []string{"must be NAME=VALUE", "exit 64"}},
		{[]string{"dlq", "edit", "orders.dead", row.ID, "--dry-run"}, []string{"there is no terminal for an editor", "exit 64"}},
		{[]string{"dlq", "groups", "bartleby.archive"}, []string{"One of its letters: bartleby dlq show bartleby.archive "}},
		{[]string{"dlq", "restore", "--because", "a mistake", "--yes", "--watch"}, []string{"done: 1 of 1 moved\n"}},
		{[]string{"dlq", "jobs"}, []string{"restore of bartleby.archive in /: job 2 done: 1 of 1 moved (begun by guest, because: a mistake)", "edit of orders.dead"}},
		{[]string{"dlq", "replay", "orders.dead", "--at", "48h", "--order-by", "header.tenant", "--yes"}, []string{"job 3 planned: 0 of 4 moved. It begins at 20"}},
		{[]string{"dlq", "replay", "orders.dead", "--at", "soon", "--yes"}, []string{"exit 64"}},
	} {
		got := ours(c.args...)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%v\n%swant %q", c.args, got, want)
			}
		}
	}
	file := t.TempDir() + "/letters"
	if got := ours("dlq", "export", "orders.dead", "--file", file); !strings.Contains(got, "4 letters written to "+file) {
		t.Error(got)
	}
	if got := ours("dlq", "export", "orders.dead", "--file", file); !strings.Contains(got, "exit 65") {
		t.Errorf("written over: %s", got)
	}
	if got := ours("dlq", "import", "bills.dead", file); got != "4 letters imported.\n" {
		t.Error(got)
	}
	rule := filepath.Join(t.TempDir(), "rule.json")
	if err := os.WriteFile(rule, []byte(`{"name": "again", "queues": "^bills\\.dead$", "action": "retry", "after_ms": 3600000}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ours("rules", "try", rule); got != "The rule would take 1 of 5 messages, 0 of them at once.\n  1  in queue bills.dead\n"+
		"  4  not: a client says where they were first published; the rule takes them with \"parked\": true\n" {
		t.Error(got)
	}
	for wrong, says := range map[string]string{"{}\n": "1 line was refused", "{}\n{}\n": "2 lines were refused"} {
		if err := os.WriteFile(rule, []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ours("dlq", "import", "bills.dead", rule); !strings.Contains(got, says) {
			t.Error(got)
		}
	}
	if got := ours("dlq", "export", "orders.dead", "--class", "none"); got != "exit 1\n" {
		t.Error(got)
	}
	if got := ours("dlq", "search", "bills.dead", "--count", "--limit", "0"); got != "5\n" {
		t.Error(got)
	}
}

// What masks hide is shown to those who ask for it and may.
func TestReveal(t *testing.T) {
	officeNode(t)
	for _, args := range [][]string{{"declare", "user", "name=eve", "password=eve", "tags=administrator,reveal"}, {"declare", "permission", "vhost=/", "user=eve", "configure=.*", "write=.*", "read=.*"}} {
		tool(t, append([]string{"rabbitmqadmin"}, args...)...)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, os.Getenv("BARTLEBY_URL")+"/api/office/masks/%2F", strings.NewReader(`{"headers": ["x-exception-message"]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("guest", "guest")
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	_ = answer.Body.Close()
	search := []string{"bartleby", "dlq", "search", "orders.dead", "--json", "--limit", "1"}
	if got := tool(t, search...); !strings.Contains(got, `"error":"•••"`) || strings.Contains(got, "customer 3") {
		t.Error(got)
	}
	if got := tool(t, append(search, "--reveal")...); !strings.Contains(got, "reveal=true (--reveal) needs the tag reveal") || !strings.Contains(got, "set_user_tags") || !strings.HasSuffix(got, "exit 77\n") {
		t.Error(got)
	}
	if got := tool(t, "bartleby", "dlq", "search", "orders.dead", "--where", "header.x-exception-message~customer"); !strings.Contains(got, "would tell") || !strings.Contains(got, "--reveal") || !strings.HasSuffix(got, "exit 77\n") {
		t.Error(got)
	}
	var letter struct{ ID string }
	if err := json.Unmarshal([]byte(tool(t, search...)), &letter); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BARTLEBY_USER", "eve")
	t.Setenv("BARTLEBY_PASSWORD", "eve")
	if got := tool(t, append(search, "--reveal")...); !strings.Contains(got, "no customer 3") {
		t.Error(got)
	}
	for args, secret := range map[string]string{"dlq groups": "no customer #", "dlq show orders.dead " + letter.ID: "no customer 3", "dlq export orders.dead": "no customer 3"} {
		masked, revealed := tool(t, append([]string{"bartleby"}, strings.Fields(args)...)...), tool(t, append([]string{"bartleby"}, strings.Fields(args+" --reveal")...)...)
		if strings.Contains(masked, secret) || !strings.Contains(revealed, secret) {
			t.Errorf("%s:\n%s\n%s", args, masked, revealed)
		}
	}
}

// --user is who logs in, in every command; whose rejections are meant, another option says.
func TestUserIsWhoLogsIn(t *testing.T) {
	officeNode(t)
	for _, args := range []string{"dlq search orders.dead", "dlq replay orders.dead --dry-run", "dlq export orders.dead"} {
		if got := tool(t, append([]string{"bartleby"}, strings.Fields(args+" --user nobody --password wrong")...)...); !strings.HasSuffix(got, "exit 77\n") {
			t.Errorf("%s as a stranger: %s", args, got)
		}
		if got := tool(t, append([]string{"bartleby"}, strings.Fields(args+" --rejected-by-user nobody")...)...); !strings.HasSuffix(got, "exit 1\n") {
			t.Errorf("%s of nobody: %s", args, got)
		}
	}
}
