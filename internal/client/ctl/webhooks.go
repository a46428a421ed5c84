package ctl

import (
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const webhooksHelp = `Webhooks are addresses that the node tells of events, such as job.halted or letter.group.created.

  bartleby webhooks set pager --url https://example.com/hook --events 'letter.#,job.halted' --secret-file secret
  bartleby webhooks test pager          tells it of an event webhook.test, and says what came of it
  bartleby webhooks ls                  what they were told, and what failed`

// webhookShown is a webhook as the API shows it.
type webhookShown struct {
	Name, URL, VHost  string
	Events            []string
	On                bool
	Delivered, Failed uint64
	Waiting           int
	LastError         string `json:"last_error"`
	LastErrMS         int64  `json:"last_error_ms"`
}

// webhooksCommand is the command with the verbs of webhooks.
func webhooksCommand(o *options) *cobra.Command {
	var asJSON bool
	jsonFlag := func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "JSON, as the management API answers")
	}
	one := func(name, short string, run func(i *invocation, at string) error) verb {
		return verb{name: name, short: short, usage: "<webhook>", min: 1, max: 1, run: func(i *invocation) error {
			return ruleFailed(run(i, path("office", "webhooks", i.args[0])))
		}}
	}
	var url, events, of, secret string
	return family(o, "webhooks", "Shows and sets addresses that are told of events", webhooksHelp, []verb{
		{
			name: "ls", short: "Lists webhooks, and what became of what they were told", usage: "[--json]", flags: jsonFlag,
			run: func(i *invocation) error { return i.listWebhooks(asJSON) },
		},
		one("show", "Shows a webhook as JSON, without its secret", func(i *invocation, at string) error { return i.raw(at) }),
		{
			name: "set", short: "Makes or changes a webhook", usage: "[--url <url>] [--events <pattern>,...] [--of <vhost>] [--secret-file <file>] <webhook>", min: 1, max: 1,
			long: "What is not given stays as it was; a new webhook needs --url and --secret-file, and is on. The file, or standard input if it is -, has the secret of 16 to 256 bytes that signs what the webhook is told.",
			flags: func(f *pflag.FlagSet) {
				f.StringVar(&url, "url", "", "the address; https:// or http://")
				f.StringVar(&events, "events", "", "names of events, or patterns as of a topic exchange, with commas between them; one that no event matches is refused")
				f.StringVar(&of, "of", "", "only what happens in this virtual host; '' for everything")
				f.StringVar(&secret, "secret-file", "", "file with the secret of 16 to 256 bytes; a new webhook needs one")
			},
			run: func(i *invocation) error {
				body := object{}
				if i.set("url") {
					body["url"] = url
				}
				if i.set("events") {
					body["events"] = strings.FieldsFunc(events, func(r rune) bool { return r == ',' || r == ' ' })
				}
				if i.set("of") {
					body["vhost"] = of
				}
				if secret != "" {
					text, err := readSecret(secret)
					if err != nil {
						return err
					}
					body["secret"] = text
				}
				return ruleFailed(i.put(path("office", "webhooks", i.args[0]), body))
			},
		},
		{
			name: "test", short: "Tells a webhook of an event webhook.test", usage: "<webhook>", min: 1, max: 1, long: "Exit codes: 0: it was delivered; 75: it was not.",
			run: func(i *invocation) error {
				i.api.http.Timeout = i.limit(time.Minute)
				var t struct {
					Status int
					TookMS int64 `json:"took_ms"`
				}
				err := i.post(path("office", "webhooks", i.args[0], "test"), nil, &t)
				if is(err, http.StatusBadGateway) {
					return fail(exitTempFail, "not delivered: %s", printable(err.Error()))
				}
				if err != nil {
					return ruleFailed(err)
				}
				i.print("Delivered: the answer was %d, after %d ms.", t.Status, t.TookMS)
				return nil
			},
		},
		one("on", "Switches a webhook on", func(i *invocation, at string) error { return i.put(at, object{"on": true}) }),
		one("off", "Switches a webhook off: what waits for it waits on", func(i *invocation, at string) error { return i.put(at, object{"on": false}) }),
		one("rm", "Removes a webhook, and what waits for it", func(i *invocation, at string) error { return i.delete(at) }),
	})
}

// readSecret reads a secret, without the end of its line.
func readSecret(name string) (string, error) {
	var text []byte
	var err error
	if name == "-" {
		text, err = io.ReadAll(io.LimitReader(os.Stdin, 1<<10))
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return "", fail(exitData, "%v", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

func (i *invocation) listWebhooks(asJSON bool) error {
	if asJSON {
		return ruleFailed(i.raw("office/webhooks"))
	}
	var list []webhookShown
	if err := i.get("office/webhooks", &list); err != nil {
		return explain(err)
	}
	if len(list) == 0 {
		i.say("There are no webhooks.")
		return nil
	}
	i.say("Webhooks ...")
	var lines []object
	for _, w := range list {
		state := "on"
		if !w.On {
			state = "off"
		}
		of := w.VHost
		if of == "" {
			of = "(all)"
		}
		lines = append(lines, object{
			"name": w.Name, "state": state, "url": w.URL, "events": strings.Join(w.Events, " "), "vhost": of, "delivered": w.Delivered, "waiting": w.Waiting, "failed": w.Failed,
		})
	}
	if err := i.aligned(fields("name", "state", "url", "events", "vhost", "delivered", "waiting", "failed"), lines); err != nil {
		return err
	}
	now := time.Now()
	for _, w := range list {
		if w.LastError != "" {
			i.say("%s: %s ago: %s", w.Name, ageOf(w.LastErrMS, now), printable(w.LastError))
		}
	}
	return nil
}
