package ctl

import (
	"net/http"
	"time"

	"github.com/spf13/pflag"
)

// dlqBreakerVerbs are what there is for the breaker of a queue, which a policy sets.
func dlqBreakerVerbs() []verb {
	var asJSON bool
	return []verb{{
		name: "breaker", short: "Shows the breaker of a queue, or closes it", usage: "[--vhost <vhost>] [--json] <queue> [close]", min: 1, max: 2,
		long: `A queue with the policy key dead-letter-breaker delivers nothing for a while when too many of its deliveries die. 'close' ends that now, for all of its messages: it needs permission to configure the queue.

Exit codes: 0: it is closed; 1: it is open, or lets one message at a time try; 65: there is no such queue, or it has no breaker; 77: not allowed.`,
		flags: func(f *pflag.FlagSet) { f.BoolVar(&asJSON, "json", false, "JSON, as the management API answers") },
		run:   func(i *invocation) error { return i.breaker(asJSON) },
	}}
}

// queueBreaker is a breaker as the API shows it.
type queueBreaker struct {
	State   string  `json:"state"`
	UntilMS *int64  `json:"until_ms"`
	Why     *string `json:"why"`
	Was     string  `json:"was,omitempty"`
}

func (i *invocation) breaker(asJSON bool) error {
	name := i.args[0]
	if len(i.args) == 2 {
		if i.args[1] != "close" {
			return badArgument("'%s' must be close", i.args[1])
		}
		var b queueBreaker
		err := i.post(path("office", "queues", i.vhost, name, "breaker", "close"), nil, &b)
		if is(err, http.StatusNotFound) {
			return i.noQueue(name)
		}
		if err != nil {
			return jobFailed(err)
		}
		if asJSON {
			return i.printJSON(b)
		}
		if b.Was == "closed" {
			i.print("The breaker of queue '%s' in vhost '%s' was closed already.", name, i.vhost)
			return nil
		}
		i.print("The breaker of queue '%s' in vhost '%s' is closed. It was %s.", name, i.vhost, b.Was)
		return nil
	}
	var q struct{ Breaker *queueBreaker }
	if err := i.get(path("queues", i.vhost, name)+"?columns=breaker", &q); err != nil {
		if is(err, http.StatusNotFound) {
			return i.noQueue(name)
		}
		return explain(err)
	}
	switch b := q.Breaker; {
	case b == nil:
		return fail(exitData, "queue '%s' in vhost '%s' has no breaker: no policy sets dead-letter-breaker for it", name, i.vhost)
	case asJSON:
		if err := i.printJSON(b); err != nil {
			return err
		}
	default:
		line := b.State
		if b.UntilMS != nil {
			line += " until " + time.UnixMilli(*b.UntilMS).Format(time.RFC3339)
		}
		if b.Why != nil {
			line += ": " + printable(*b.Why)
		}
		i.print("%s", line)
	}
	if q.Breaker.State != "closed" {
		return noneFound{}
	}
	return nil
}

func (i *invocation) noQueue(name string) error {
	return fail(exitData, "no queue '%s' in vhost '%s'", name, i.vhost)
}

func (i *invocation) printJSON(v any) error {
	text, err := encode(v)
	if err == nil {
		i.print("%s", text)
	}
	return err
}
