package main

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// check is an error unless got is what is wanted.
func check(what string, got, want any) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}

// countOf is how often the message died in the queue for the reason.
func countOf(headers amqp.Table, queue, reason string) int64 {
	deaths, _ := headers["x-death"].([]any)
	for _, death := range deaths {
		if death, ok := death.(amqp.Table); ok && death["queue"] == queue && death["reason"] == reason {
			count, _ := death["count"].(int64)
			return count
		}
	}
	return 0
}

// checkRejected checks what headers say of a message from exchange jobs, rejected in work.
func checkRejected(headers amqp.Table) error {
	deaths, _ := headers["x-death"].([]any)
	if len(deaths) != 1 {
		return fmt.Errorf("x-death is %v, want one death", headers["x-death"])
	}
	death, _ := deaths[0].(amqp.Table)
	at, _ := death["time"].(time.Time)
	err := check("x-death", death, amqp.Table{
		"reason": "rejected", "queue": "work", "exchange": "jobs", "routing-keys": []any{"job"}, "count": int64(1), "time": at,
	})
	if age := time.Since(at); age < -5*time.Second || age > time.Minute {
		err = errors.Join(err, fmt.Errorf("x-death time is %s ago", age))
	}
	for _, which := range []string{"first", "last"} {
		for key, want := range map[string]string{"reason": "rejected", "queue": "work", "exchange": "jobs"} {
			name := "x-" + which + "-death-" + key
			err = errors.Join(err, check(name, headers[name], want))
		}
	}
	return err
}

// checkSurvivors checks what came after the broker was killed: 3 to 10, in order.
// Acknowledgements have no answer, so that 0 to 2, which were acknowledged, may come again before.
func checkSurvivors(bodies []string) error {
	again := max(len(bodies)-8, 0)
	return errors.Join(
		check("what comes again", bodies[:again], numbers(3-again, 3)),
		check("bodies", bodies[again:], numbers(3, 11)),
	)
}
