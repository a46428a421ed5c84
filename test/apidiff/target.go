package apidiff

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// reply is what a request got.
type reply struct {
	status int
	header http.Header
	body   []byte
}

var client = http.Client{Timeout: 30 * time.Second}

func (t target) do(method, path, body string) (reply, error) {
	r, err := http.NewRequest(method, t.http+"/api/"+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	r.SetBasicAuth("guest", "guest")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return send(r)
}

func get(address string) (reply, error) {
	r, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return reply{}, err
	}
	return send(r)
}

func send(r *http.Request) (reply, error) {
	resp, err := client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, text}, err
}

// names are what stands for a resource's placeholders.
type names struct{ node, connection string }

// names waits until the connection is shown and all that happened has settled:
// RabbitMQ's statistics are late, and what is busy has no idle_since.
func (t target) names() (n names, err error) {
	for range 120 {
		var overview struct{ Node string }
		var connections []struct{ Name, VHost string }
		var idle struct {
			Since string `json:"idle_since"`
		}
		if err := errors.Join(t.read("overview", &overview), t.read("connections", &connections), t.read("queues/apidiff/classic", &idle)); err != nil {
			return n, err
		}
		for _, c := range connections {
			if c.VHost == vhost && idle.Since != "" {
				return names{overview.Node, c.Name}, nil
			}
		}
		time.Sleep(time.Second / 2)
	}
	return n, errors.New("the connection is not shown, or its queue does not come to rest")
}

func (t target) read(path string, into any) error {
	a, err := t.do("GET", path, "")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("GET %s: %d %s: %w", path, a.status, a.body, err)
	}
	return nil
}

// shapes reads every resource.
func (t target) shapes() (map[string][]string, error) {
	n, err := t.names()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse("amqp://" + t.amqp)
	if err != nil {
		return nil, err
	}
	fill := strings.NewReplacer("NODE", escape(n.node), "CONNECTION", escape(n.connection), "CHANNEL", escape(n.connection), "AMQP", u.Port())
	shapes := map[string][]string{}
	for _, r := range resources {
		a, err := t.do("GET", fill.Replace(r), "")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r, err)
		}
		lines := []string{fmt.Sprint(a.status)}
		if json.Valid(a.body) {
			s, err := shapeOf(a.body, n.node, ours)
			if err != nil {
				return nil, fmt.Errorf("%s: %w: %s", r, err, a.body)
			}
			lines = append(lines, s.lines()...)
		} else if len(a.body) > 0 {
			lines = append(lines, "text")
		}
		shapes[r] = lines
	}
	return shapes, nil
}

// ours says whether an element of a list is of the topology that is built, or of
// no virtual host: others may use the same node.
func ours(e any) bool {
	object, ok := e.(map[string]any)
	if !ok {
		return true
	}
	if queue, ok := object["queue"].(map[string]any); ok {
		object = queue
	}
	v, ok := object["vhost"]
	return !ok || v == vhost
}
