package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/office"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/test/node"
)

// A job of the Dead Letter Office that a kill interrupts at any step goes on: each letter is in one place, where the job
// puts it, and the job's counts are exact. A job that its client was told of is there; one that it was not told of may be.
func TestJobsThroughKills(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers for a while")
	}
	first := *seed
	if first == 0 {
		first = rand.Uint64() >> 16
	}
	for i, action := range []string{"replay", "move", "discard", "restore", "edit"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			for round := range max(2, *kills/16) {
				s := first + uint64(100*i+round)
				r := &jobRound{t: t, action: action, rng: rand.New(rand.NewPCG(s, 2))}
				if r.play(); t.Failed() {
					t.Logf("seed %d: job from a %s queue to a %s queue, killed at %s; to play it again:\n\tgo test ./test/crash -count=1 -run 'TestJobsThroughKills/^%s$' -seed %d -kills 16",
						s, r.from, r.to, r.point, action, s-uint64(100*i))
					return
				}
			}
		})
	}
}

// jobRound is one job and one kill.
type jobRound struct {
	t        *testing.T
	rng      *rand.Rand
	action   string
	from, to string // types of the queues
	point    string
	letters  int
	n        *node.Node
}

// letterSlice is more letters than a job moves at a time.
const letterSlice = 1500

func (r *jobRound) play() {
	kinds := []string{"classic", "quorum"}
	r.from, r.to, r.letters = kinds[r.rng.IntN(2)], kinds[r.rng.IntN(2)], 1+r.rng.IntN(letterSlice)
	if r.action == "edit" {
		r.letters = 1 + r.rng.IntN(5)
	}
	points := append(slices.Clone(office.JobFailpoints), office.EditFailpoints...)
	if r.rng.IntN(2) == 0 {
		points = slices.Concat(partition.Failpoints, journal.Failpoints, broker.Failpoints)
	}
	r.point = fmt.Sprintf("%s:%d", points[r.rng.IntN(len(points))], 1+r.rng.IntN(3))
	dir, err := os.MkdirTemp("", "bartleby-jobs-")
	if err != nil {
		r.t.Fatal(err)
	}
	o := node.Options{Bin: *binary, Dir: dir}
	r.start(o)
	defer func() {
		r.n.Kill()
		if !r.t.Failed() {
			_ = os.RemoveAll(dir)
		}
	}()
	r.prepare()
	if err := r.n.Stop(); err != nil {
		r.t.Fatal(err)
	}
	armed := o
	armed.Env = append(slices.Clone(environment), "BARTLEBY_FAILPOINT="+r.point)
	told := ""
	if n, err := node.Start(armed); err == nil {
		r.n = n
		told = r.begin()
		select {
		case <-n.Ended():
		case <-time.After(time.Duration(r.rng.IntN(300)) * time.Millisecond):
			r.point += ", which it did not reach, and so outside"
		}
		n.Kill()
	} else if n == nil || !n.Killed() {
		r.t.Fatal(err)
	}
	r.start(o)
	r.check(told)
}

func (r *jobRound) start(o node.Options) {
	r.t.Helper()
	n, err := node.Start(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.n = n
}

// prepare puts the letters where the job finds them.
func (r *jobRound) prepare() {
	conn, err := dial(r.n.AMQP)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	for name, kind := range map[string]string{"dead": r.from, "work": r.to} {
		if err == nil {
			_, err = ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": kind})
		}
	}
	var last *amqp.DeferredConfirmation
	for i := 0; i < r.letters && err == nil; i++ {
		last, err = ch.PublishWithDeferredConfirm("", "dead", true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: fmt.Sprint(i), Body: []byte("wrong"),
			Headers: amqp.Table{"x-original-exchange": "", "x-original-routingKey": "work", "x-exception-message": "no customer"},
		})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	if ok, err := last.WaitContext(r.t.Context()); !ok || err != nil {
		r.t.Fatal(ok, err)
	}
	if r.action == "restore" {
		if j := r.until(r.job(map[string]any{"action": "discard", "queue": "dead"})); j.Moved != r.letters {
			r.t.Fatalf("%d of %d were discarded", j.Moved, r.letters)
		}
	}
}

// begin starts the job, and returns its id if the node has told it.
func (r *jobRound) begin() string {
	switch r.action {
	case "restore":
		return r.job(map[string]any{"action": "restore", "queue": "bartleby.archive"})
	case "move":
		return r.job(map[string]any{"action": "move", "queue": "dead", "to_queue": "work"})
	case "edit":
		var page struct{ Items []struct{ ID string } }
		if !r.ask(http.MethodGet, "office/letters/%2F/dead?limit=1&order=oldest", nil, &page) || len(page.Items) == 0 {
			return ""
		}
		return r.job(map[string]any{"action": "edit", "queue": "dead", "ids": []string{page.Items[0].ID}, "edit": map[string]any{"body": "mended"}})
	}
	return r.job(map[string]any{"action": r.action, "queue": "dead"})
}

// job plans a job and begins it. It returns "" if the node has died meanwhile.
func (r *jobRound) job(request map[string]any) string {
	request["vhost"] = "/"
	var plan struct {
		Token string
		Count int
	}
	if !r.ask(http.MethodPost, "office/jobs?dry_run=true", request, &plan) {
		return ""
	}
	request["token"], request["count"] = plan.Token, plan.Count
	var j struct{ ID string }
	r.ask(http.MethodPost, "office/jobs", request, &j)
	return j.ID
}

// jobNow is a job as the node shows it.
type jobNow struct {
	ID, Action, State, Why string
	Moved                  int
	Outcomes               struct{ Waiting, Acknowledged, Removed int }
}

// until waits until a job is over.
func (r *jobRound) until(id string) (j jobNow) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		j = jobNow{}
		if !r.ask(http.MethodGet, "office/jobs/"+id, nil, &j) {
			r.t.Fatalf("job %s: the node has died", id)
		}
		if j.State == "done" || j.State == "failed" {
			return j
		}
		if time.Now().After(end) {
			r.t.Fatalf("job %s is %s after 20 s: %s", id, j.State, j.Why)
		}
	}
}

// check waits for the job and looks where the letters are.
func (r *jobRound) check(told string) {
	var list []jobNow
	r.ask(http.MethodGet, "office/jobs", nil, &list)
	at := slices.IndexFunc(list, func(j jobNow) bool { return j.Action == r.action })
	if told != "" && (at < 0 || list[at].ID != told) {
		r.t.Fatalf("the node has told of job %s, and there are %+v", told, list)
	}
	var j jobNow
	if at >= 0 {
		j = r.until(list[at].ID)
	}
	source, target := "dead", map[string]string{"replay": "work", "move": "work", "discard": string(broker.Archive), "restore": "dead", "edit": "work"}[r.action]
	if r.action == "restore" {
		source = string(broker.Archive)
	}
	want := r.letters
	if r.action == "edit" {
		want = 1
	}
	if j.State != "done" { // there is none, or an edit without a copy that failed
		want = 0
		if at >= 0 && r.action != "edit" {
			r.t.Fatalf("the job is %s: %s", j.State, j.Why)
		}
	}
	if j.Moved != want || j.Outcomes.Waiting != want {
		r.t.Errorf("job %+v, want %d", j, want)
	}
	places := r.places()
	for i := range r.letters {
		where := source
		if r.action == "edit" && i == 0 && want == 1 {
			if got := places["0 mended"]; !slices.Equal(got, []string{"work"}) {
				r.t.Errorf("the edited letter is in %v", got)
			}
			where = string(broker.Archive)
		} else if r.action != "edit" && want > 0 {
			where = target
		}
		name := fmt.Sprint(i, " wrong")
		if got := places[name]; !slices.Equal(got, []string{where}) {
			r.t.Errorf("letter %d is in %v, want %s", i, got, where)
		}
		delete(places, name)
	}
	if delete(places, "0 mended"); len(places) > 0 {
		r.t.Errorf("and there are %v", places)
	}
	if at < 0 || want == 0 {
		return
	}
	if after := r.until(j.ID); after.Outcomes.Waiting != 0 || after.Outcomes.Acknowledged != want {
		r.t.Errorf("after all were taken: %+v", after)
	}
}

// places takes all messages, and says where each was.
func (r *jobRound) places() map[string][]string {
	r.t.Helper()
	conn, err := dial(r.n.AMQP)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	found := map[string][]string{}
	for _, q := range []string{"dead", "work", string(broker.Archive)} {
		ch, err := conn.Channel()
		if err != nil {
			r.t.Fatal(err)
		}
		for {
			m, ok, err := ch.Get(q, true)
			if err != nil || !ok {
				break // an archive that nothing was put into
			}
			name := m.MessageId + " " + string(m.Body)
			found[name] = append(found[name], q)
		}
	}
	return found
}

// ask makes a request. It says whether the node has answered; what it refuses ends the test.
func (r *jobRound) ask(method, path string, body, into any) bool {
	r.t.Helper()
	var in io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			r.t.Fatal(err)
		}
		in = bytes.NewReader(text)
	}
	q, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.n.HTTP+"/api/"+path, in)
	if err != nil {
		r.t.Fatal(err)
	}
	q.SetBasicAuth("guest", "guest")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return false
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		if strings.Contains(string(text), "stopping") {
			return false
		}
		r.t.Fatalf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		r.t.Fatal(err)
	}
	return true
}
