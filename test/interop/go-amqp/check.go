package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"time"

	"github.com/Azure/go-amqp"
)

// check is an error unless got is what is wanted.
func check(what string, got, want any) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s is %#v, want %#v", what, got, want)
	}
	return nil
}

// death is an element of x-opt-deaths.
type death = map[any]any

func deathsOf(m *amqp.Message) []death {
	deaths, _ := m.Annotations["x-opt-deaths"].([]death)
	return deaths
}

// countOf is how often the message died in the queue for the reason.
func countOf(m *amqp.Message, queue, reason string) uint64 {
	for _, d := range deathsOf(m) {
		if d["queue"] == queue && d["reason"] == reason {
			count, _ := d["count"].(uint64)
			return count
		}
	}
	return 0
}

// checkRejected checks what annotations say of a message from exchange jobs, rejected in work.
func checkRejected(m *amqp.Message) error {
	deaths := deathsOf(m)
	if len(deaths) != 1 {
		return fmt.Errorf("x-opt-deaths is %#v, want one death", m.Annotations["x-opt-deaths"])
	}
	at, _ := deaths[0]["first-time"].(time.Time)
	err := check("x-opt-deaths", deaths[0], death{
		"queue": "work", "reason": "rejected", "count": uint64(1), "first-time": at, "last-time": at,
		"exchange": "jobs", "routing-keys": []string{"job"},
	})
	if age := time.Since(at); age < -5*time.Second || age > time.Minute {
		err = errors.Join(err, fmt.Errorf("its time is %s ago", age))
	}
	for _, which := range []string{"first", "last"} {
		for key, want := range map[string]string{"reason": "rejected", "queue": "work", "exchange": "jobs"} {
			name := "x-" + which + "-death-" + key
			err = errors.Join(err, check(name, m.Annotations[name], want))
		}
	}
	return err
}

// checkHeader checks what the header says of earlier deliveries.
func checkHeader(m *amqp.Message, firstAcquirer bool, deliveryCount uint32) error {
	if m.Header == nil {
		return errors.New("the message has no header")
	}
	return errors.Join(
		check("first-acquirer", m.Header.FirstAcquirer, firstAcquirer),
		check("delivery-count", m.Header.DeliveryCount, deliveryCount),
	)
}

// checkSurvivors checks what came after the broker was killed: 3 to 10, in order.
// Outcomes that a receiver settles have no answer, so that 0 to 2, which were accepted, may come again before.
func checkSurvivors(bodies []string) error {
	again := max(len(bodies)-8, 0)
	return errors.Join(
		check("what comes again", bodies[:again], numbers(3-again, 3)),
		check("bodies", bodies[again:], numbers(3, 11)),
	)
}

// cause is what the Dead Letter Office says about why a message died.
type cause struct{ From, Class, Error string }

// causeOf waits for the one letter of the queue.
func causeOf(ctx context.Context, queue string) (cause, error) {
	where := os.Getenv("HTTP_URI") + "/api/office/letters/" + url.PathEscape(os.Getenv("AMQP_VHOST")) + "/" + queue
	var list struct{ Items []struct{ ID string } }
	for len(list.Items) == 0 {
		if err := get(ctx, where, &list); err != nil {
			return cause{}, err
		}
	}
	var letter struct{ Cause cause }
	return letter.Cause, errors.Join(check("letters", len(list.Items), 1), get(ctx, where+"/"+list.Items[0].ID, &letter))
}

func get(ctx context.Context, url string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.SetBasicAuth("guest", "guest")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, a.Status)
	}
	return json.NewDecoder(a.Body).Decode(into)
}
