//go:build unix

package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

// causes are why 40,000 letters died, and how many of each.
var causes = []struct {
	queue, class, text string
	letters            int
}{
	{"orders", "java.lang.NullPointerException", "price of item %d is null", 10000},
	{"orders", "com.fasterxml.jackson.core.JsonParseException", "Unexpected character at column %d", 8000},
	{"payments", "shop.PaymentTimeoutException", "no answer within %d ms", 9000},
	{"payments", "shop.CardDeclinedException", "card of order %d was declined", 4000},
	{"mails", "shop.InvalidAddressException", "550 no mailbox \"user%d\"", 6000},
	{"mails", "java.net.ConnectException", "connection %d refused", 2500},
	{"mails", "shop.TemplateNotFoundException", "template %d does not exist", 500},
}

// The whole task on the command line: 40,000 letters of seven causes lie in three queues. Find the causes, send one kind back with
// care, park the second, discard the third, and see what became of them, in five commands; the node is killed in the middle.
// console/test/task.test.mjs does it in a browser.
func TestTheWholeTaskTakesFiveCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bin, err := node.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := node.Options{Bin: bin, Dir: dir}
	n, err := node.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { n.Kill() }()
	breakdown(t, n.AMQP)
	commands := 0
	bartleby := func(args ...string) string {
		t.Helper()
		commands++
		c := exec.Command(bin, args...)
		c.Env = append(node.Environment(), "BARTLEBY_DATA_DIR="+filepath.Join(dir, "data"))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(c.Args[1:], " "), err, out)
		}
		return string(out)
	}

	groups := bartleby("dlq", "groups")
	id := map[string]string{}
	for _, c := range causes {
		m := regexp.MustCompile(fmt.Sprintf(`(?m)^(\w+)\s+%d\s.*\s%s\s+rejected\s+%s`, c.letters, c.queue, regexp.QuoteMeta(c.class[strings.LastIndex(c.class, ".")+1:]))).FindStringSubmatch(groups)
		if m == nil {
			t.Fatalf("no group of %d letters of %s of %s:\n%s", c.letters, c.class, c.queue, groups)
		}
		id[c.class] = m[1]
	}
	bartleby("dlq", "replay", "orders.dead", "--group", id[causes[0].class], "--rate", "500", "--canary", "100:2s:20%", "--because", "prices are there again", "--yes")
	bartleby("dlq", "move", "payments.dead", "--group", id[causes[2].class], "--to-queue", "payments.parked", "--because", "the bank is asked first", "--yes")
	bartleby("dlq", "discard", "mails.dead", "--group", id[causes[4].class], "--because", "nobody has these addresses", "--yes")

	ctx, end := context.WithCancel(t.Context())
	defer end()
	go mended(ctx, n.AMQP)
	jobs := func() (list []struct {
		ID       string
		State    string
		Moved    int
		Outcomes map[string]int
	}) {
		t.Helper()
		c := exec.Command(bin, "dlq", "jobs", "--json")
		c.Env = append(node.Environment(), "BARTLEBY_DATA_DIR="+filepath.Join(dir, "data"))
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &list); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return list
	}
	until(t, "a third of the letters is back", func() bool { list := jobs(); return list[len(list)-1].Moved > 3000 })
	n.Kill()
	end()
	if n, err = node.Start(o); err != nil {
		t.Fatal(err)
	}
	if list := jobs(); list[len(list)-1].State == "done" {
		t.Error("the job was over before the node was killed")
	}
	again, endAgain := context.WithCancel(t.Context())
	defer endAgain()
	go mended(again, n.AMQP)
	until(t, "all letters have an outcome", func() bool {
		list := jobs()
		replay := list[len(list)-1]
		return replay.State == "done" && replay.Outcomes["acknowledged"]+replay.Outcomes["died_again"] == 10000
	})
	report := bartleby("dlq", "jobs")
	for _, want := range []string{
		`(?m)^.*replay of.*done: 10000 of 10000 moved, 9800 acknowledged, 200 died again `, `(?m)^.*move of.*done: 9000 of 9000 moved`, `(?m)^.*discard of.*done: 6000 of 6000 moved`,
	} {
		if !regexp.MustCompile(want).MatchString(report) {
			t.Errorf("no %s in\n%s", want, report)
		}
	}
	if commands > 5 {
		t.Errorf("%d commands", commands)
	}
	ch := channel(t, n.AMQP)
	for queue, want := range map[string]int{
		"orders": 0, "orders.dead": 8200, "payments": 0, "payments.dead": 4000, "payments.parked": 9000, "mails": 0, "mails.dead": 3000, "bartleby.archive": 6000,
	} {
		if q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil || q.Messages != want {
			t.Errorf("%d messages are in %s, want %d: %v", q.Messages, queue, want, err)
		}
	}
}

func channel(t *testing.T, addr string) *amqp.Channel {
	t.Helper()
	c, err := amqp.Dial("amqp://guest:guest@" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// breakdown publishes what the causes say, and rejects it all.
func breakdown(t *testing.T, addr string) {
	t.Helper()
	ch := channel(t, addr)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	declare := func(queue string, args amqp.Table) {
		t.Helper()
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		must(err)
	}
	must(ch.ExchangeDeclare("shop", "direct", true, false, false, false, nil))
	must(ch.Confirm(false))
	declare("payments.parked", nil)
	total := 0
	for _, queue := range []string{"orders", "payments", "mails"} {
		declare(queue+".dead", nil)
		declare(queue, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue + ".dead"})
		must(ch.QueueBind(queue, queue, "shop", false, nil))
	}
	for _, c := range causes {
		var last *amqp.DeferredConfirmation
		for i := range c.letters {
			text := fmt.Sprintf(c.text, i)
			var err error
			last, err = ch.PublishWithDeferredConfirm("shop", c.queue, false, false, amqp.Publishing{
				DeliveryMode: amqp.Persistent, Body: fmt.Append(nil, i), Headers: amqp.Table{"x-exception-message": text, "x-exception-stacktrace": c.class + ": " + text},
			})
			must(err)
		}
		total += c.letters
		last.Wait()
	}
	for _, queue := range []string{"orders", "payments", "mails"} {
		deliveries, err := ch.Consume(queue, queue, false, false, false, false, nil)
		must(err)
		for left := lettersOf(queue); left > 0; left-- {
			d := <-deliveries
			must(d.Reject(false))
		}
		must(ch.Cancel(queue, false))
	}
	until(t, "the dead lie in their queues", func() bool {
		sum := 0
		for _, queue := range []string{"orders", "payments", "mails"} {
			q, err := ch.QueueDeclarePassive(queue+".dead", true, false, false, false, nil)
			must(err)
			sum += q.Messages
		}
		return sum == total
	})
}

func lettersOf(queue string) (n int) {
	for _, c := range causes {
		if c.queue == queue {
			n += c.letters
		}
	}
	return n
}

// mended consumes the orders until ctx ends or its connection breaks, and does all but one of fifty.
func mended(ctx context.Context, addr string) {
	c, err := amqp.Dial("amqp://guest:guest@" + addr)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil || ch.Qos(50, 0, false) != nil {
		return
	}
	deliveries, err := ch.ConsumeWithContext(ctx, "orders", "", false, false, false, false, nil)
	if err != nil {
		return
	}
	for d := range deliveries {
		number := 0
		_, _ = fmt.Sscan(string(d.Body), &number)
		if number%50 == 0 {
			err = d.Reject(false)
		} else {
			err = d.Ack(false)
		}
		if err != nil {
			return
		}
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited two minutes until %s", what)
		}
	}
}
