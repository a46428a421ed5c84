package ctl_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"bartleby.mq/internal/client/ctl"
)

// replay's options choose messages and where they go; what is left out, stays or is refused names what it is about.
func TestReplay(t *testing.T) {
	url, _ := node(t)
	t.Setenv("BARTLEBY_URL", url)
	ours := func(args string) string { return tool(t, append([]string{"bartleby"}, strings.Fields(args)...)...) }
	admin := func(args ...string) { tool(t, append([]string{"rabbitmqadmin"}, args...)...) }
	for _, name := range []string{"dead", "other"} {
		admin("declare", "queue", "name="+name)
	}
	admin("declare", "queue", "name=work", `arguments={"x-dead-letter-exchange":"","x-dead-letter-routing-key":"dead"}`)
	admin("declare", "exchange", "name=nowhere", "type=direct")
	for _, id := range []string{"a", "b", "c", "d"} {
		admin("publish", "routing_key=work", "payload="+id, `properties={"message_id":"`+id+`","headers":{"tenant":"`+id+`","n":7}}`)
		admin("get", "queue=work", "ackmode=reject_requeue_false")
	}
	for _, args := range []string{"add_user reader reader", "set_user_tags reader management", "set_permissions reader ^$ ^orders$ .*"} {
		ours(args)
	}
	const looking, replaying = "Looking for dead letters in queue 'dead' in vhost '/', changing nothing ...\n", "Replaying dead letters of queue 'dead' in vhost '/' ...\n"
	for _, step := range []struct{ args, want string }{
		{"replay dead --dry-run --message-id a", looking + "examined: 4, matched: 1, replayed: 0\n       1  exchange '' key 'work' -> work\n       3  not selected: rejected in queue 'work'\n"},
		{"replay dead --dry-run --header tenant=b --header n=7 --to-queue other", looking + "examined: 4, matched: 1, replayed: 0\n       1  exchange '' key 'other' -> other\n       3  not selected: rejected in queue 'work'\n"},
		{"replay dead --dry-run --older-than 1d", looking + "examined: 4, matched: 0, replayed: 0\n       4  not selected: rejected in queue 'work'\n"},
		{"replay dead --dry-run --newer-than 1d12h --replayed no", looking + "examined: 4, matched: 4, replayed: 0\n       4  exchange '' key 'work' -> work\n"},
		{"replay -q dead --replayed yes", "examined: 4, matched: 0, replayed: 0\n       4  not selected: rejected in queue 'work'\n"},
		{"replay -q dead --from-queue typo", "examined: 4, matched: 0, replayed: 0\n       4  not selected: rejected in queue 'work'\nError:\nNo message was selected, and no queue has the name 'typo'\nexit 65\n"},
		{"replay dead --to-exchange nowhere --limit 1", replaying + "examined: 4, matched: 1, replayed: 0\n       1  stay: exchange 'nowhere' routes key 'work' to no queue\nError:\n1 messages stay in queue 'dead', 0 were replayed\nexit 75\n"},
		{"replay -q dead --dry-run --to-exchange nowhere", "examined: 4, matched: 4, replayed: 0\n       4  stay: exchange 'nowhere' routes key 'work' to no queue\nError:\nAll 4 messages would stay in queue 'dead'\nexit 75\n"},
		{"replay -q dead --dry-run --older-than 2h --newer-than 1h", "Error:\nreplay of queue 'dead' in vhost '/': no message died both more than 2h0m0s and less than 1h0m0s ago: the age of older-than must be less than that of newer-than\nexit 65\n"},
		{"replay dead --to-queue typo", replaying + "Error:\nreplay of queue 'dead' in vhost '/': the queue 'typo' does not exist\nexit 65\n"},
		{"replay -q dead --user reader --password reader --to-queue other", "Error:\nwrite access to exchange 'amq.default' in vhost '/' refused for user 'reader'\nexit 77\n"},
		{"replay -q dead --message-id a --to-queue other", "examined: 4, matched: 1, replayed: 1\n       1  exchange '' key 'other' -> other\n       3  not selected: rejected in queue 'work'\n"},
		{"replay -q dead --message-id b --routing-key other", "examined: 3, matched: 1, replayed: 1\n       1  exchange '' key 'other' -> other\n       2  not selected: rejected in queue 'work'\n"},
		{"replay -q dead --message-id c --to-exchange amq.default", "examined: 2, matched: 1, replayed: 1\n       1  exchange '' key 'work' -> work\n       1  not selected: rejected in queue 'work'\n"},
		{"deaths -s other message_id replayed_from", "a\tdead\nb\tdead\n"},
		{"list_queues -s name messages", "dead\t1\nother\t2\nwork\t1\n"},
	} {
		if got := ours(step.args); got != step.want {
			t.Errorf("%s\n%swant\n%s", step.args, got, step.want)
		}
	}
	for _, args := range []string{
		"--older-than 1x", "--older-than -1h", "--older-than 1d-1h", "--newer-than 99999999999d", "--older-than d", "--newer-than 0s", "--replayed maybe", "--header tenant", "--header =x", "--header a=1 --header a=2",
		"--to-queue=", "--message-id=", "--from-queue=", "--reason=", "--to-queue other --routing-key k", "--to-queue other --to-exchange x", "--limit -1",
	} {
		if got := ours("replay dead " + args); !strings.Contains(got, "Error (argument validation)") || !strings.HasSuffix(got, "exit 64\n") {
			t.Errorf("%s\n%swant exit code 64", args, got)
		}
	}
}

// Ctrl-C ends the command with what is known of the messages.
func TestAReplayThatIsInterruptedSaysSo(t *testing.T) {
	url, _ := node(t)
	t.Setenv("BARTLEBY_URL", url)
	tool(t, "rabbitmqadmin", "declare", "queue", "name=dead")
	ctx, interrupt := context.WithCancel(context.Background())
	interrupt()
	var out bytes.Buffer
	root := ctl.Command("bartleby")
	root.SetArgs([]string{"replay", "dead"})
	root.SetOut(&out)
	root.SetErr(&out)
	if code := ctl.Execute(ctx, root); code != 130 || !strings.Contains(out.String(), "Interrupted. The node stops the replay") || !strings.Contains(out.String(), "Run the command again to continue.") {
		t.Errorf("exit code %d, want 130:\n%s", code, out.String())
	}
}
