package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// adminName is RabbitMQ's client of the management API.
const adminName = "rabbitmqadmin"

// admin is one call of rabbitmqadmin, as far as its verbs need to know it.
type admin struct {
	adminOptions
	ctx  context.Context
	args []string // after the verb
	api  *client
	host string // as texts name it
	in   io.Reader
	out  io.Writer
}

// adminVerbs are the verbs of rabbitmqadmin, in the order of its help. Objects are what the first argument may be.
var adminVerbs = []struct {
	name    string
	objects func() []string
	run     func(*admin) error
}{
	{"list", func() []string { return listingNames(listable) }, func(a *admin) error { return a.list("list", listable) }},
	{"show", func() []string { return listingNames(showable) }, func(a *admin) error { return a.list("show", showable) }},
	{"declare", func() []string { return objectNames(declarable) }, (*admin).declare},
	{"delete", func() []string { return objectNames(deletable) }, func(a *admin) error { return a.remove(deletable, "deleted") }},
	{"close", func() []string { return objectNames(closable) }, func(a *admin) error { return a.remove(closable, "closed") }},
	{"purge", func() []string { return objectNames(purgeable) }, func(a *admin) error { return a.remove(purgeable, "purged") }},
	{"import", nil, (*admin).importDefinitions},
	{"export", nil, (*admin).exportDefinitions},
	{"publish", nil, (*admin).publish},
	{"get", nil, (*admin).get},
}

// adminCommand is rabbitmqadmin as it came with the management plugin of RabbitMQ up to 4.0: the same verbs, options,
// configuration file, formats, messages and exit codes, so that scripts written for it run. It is one command, and not a tree,
// because help and completion are all that a tree would add.
func adminCommand() *cobra.Command {
	o := &adminOptions{}
	root := &cobra.Command{
		Use: adminName + " [options] subcommand", Short: "Administer a node through the management API",
		Long:         "Lists, declares and deletes objects, publishes and gets messages.\n\n" + adminUsage(),
		SilenceUsage: true, SilenceErrors: true, DisableFlagsInUseLine: true,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeAdmin,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	o.declare(root.Flags())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &failure{2, fmt.Sprintf("Usage\n=====\n  %s [options] subcommand\n\n%s: error: %v", adminName, adminName, err)}
	})
	root.RunE = func(c *cobra.Command, args []string) error {
		if o.completion {
			return c.GenBashCompletionV2(c.OutOrStdout(), true)
		}
		if len(args) == 0 {
			return adminUsageError("Action not specified")
		}
		if args[0] == "help" {
			return adminHelp(c, args[1:])
		}
		return runAdmin(c, o, args[0], args[1:])
	}
	return root
}

func runAdmin(c *cobra.Command, o *adminOptions, verb string, args []string) error {
	for _, v := range adminVerbs {
		if v.name != verb {
			continue
		}
		api, host, err := o.connect(c.Flags(), c.ErrOrStderr())
		if err != nil {
			return err
		}
		ctx := c.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		a := &admin{adminOptions: *o, ctx: ctx, args: args, api: api, host: host, in: c.InOrStdin(), out: c.OutOrStdout()}
		return v.run(a)
	}
	return adminUsageError("Action %s not understood", verb)
}

// adminUsageError is a command line that rabbitmqadmin does not accept.
func adminUsageError(format string, args ...any) error {
	return &failure{1, fmt.Sprintf("\nERROR: "+format+"\n\n"+adminName+" --help for help\n", args...)}
}

// adminError is the end of a command that failed.
func adminError(format string, args ...any) error {
	return &failure{1, fmt.Sprintf("*** "+format+"\n", args...)}
}

// send makes a request. at is below /api and begins with a slash.
func (a *admin) send(method, at string, body []byte) (string, error) {
	text, err := a.api.send(a.ctx, method, strings.TrimPrefix(at, "/"), body, http.Header{})
	if err == nil {
		return string(text), nil
	}
	shown := a.pathPrefix + "/api" + at
	var refused *apiError
	var failed *url.Error
	switch {
	case errors.As(err, &refused):
		switch refused.status {
		case http.StatusBadRequest:
			return "", adminError("%s", refused.reason)
		case http.StatusUnauthorized:
			return "", adminError("Access refused: %s", shown)
		case http.StatusNotFound:
			return "", adminError("Not found: %s", shown)
		case http.StatusMethodNotAllowed:
			return "", adminError("Method not allowed: %s", refused.reason)
		}
		return "", adminError("Received response %d %s for path %s\n%s", refused.status, http.StatusText(refused.status), shown, refused.reason)
	case errors.As(err, &failed) && failed.Timeout():
		return "", adminError("Timed out getting HTTP response (request timeout: %g seconds)", a.api.http.Timeout.Seconds())
	case errors.As(err, &failed) && a.api.dir == "":
		return "", adminError("Could not connect: %v", failed.Err)
	}
	return "", a.api.unreachable(err)
}

// say prints a message about what was done.
func (a *admin) say(format string, args ...any) {
	if !a.quiet {
		a.print(format, args...)
	}
}

func (a *admin) print(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format+"\n", args...) }

// file is the one argument of import and export.
func (a *admin) file() (string, error) {
	if len(a.args) != 1 {
		return "", adminUsageError("Exactly one argument required")
	}
	return a.args[0], nil
}

func (a *admin) definitions() string {
	if a.vhost == "" {
		return "/definitions"
	}
	return "/definitions/" + quote(a.vhost)
}

func (a *admin) exportDefinitions() error {
	file, err := a.file()
	if err != nil {
		return err
	}
	text, err := a.send(http.MethodGet, a.definitions(), nil)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil { // it has the hashes of passwords
		return adminError("%v", err)
	}
	a.say("Exported definitions for %s to %q", a.host, file)
	return nil
}

func (a *admin) importDefinitions() error {
	file, err := a.file()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return adminError("%v", err)
	}
	if _, err := a.send(http.MethodPost, a.definitions(), text); err != nil {
		return err
	}
	a.say("Uploaded definitions from %q to %s. The import process may take some time. Consult server logs to track progress.", file, a.host)
	return nil
}

// completeAdmin completes verbs, and the objects that they take.
func completeAdmin(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		names := []string{"help"}
		for _, v := range adminVerbs {
			names = append(names, v.name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	case 1:
		for _, v := range adminVerbs {
			if v.name == args[0] && v.objects != nil {
				return v.objects(), cobra.ShellCompDirectiveNoFileComp
			}
		}
		if args[0] == "help" {
			return adminTopics, cobra.ShellCompDirectiveNoFileComp
		}
	}
	return nil, cobra.ShellCompDirectiveDefault // import and export take a file
}

var adminTopics = []string{"subcommands", "config"}

func adminHelp(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	if len(args) > 1 {
		return adminUsageError("Exactly one argument required")
	}
	text := map[string]string{"subcommands": adminUsage(), "config": adminConfigUsage}[args[0]]
	if text == "" {
		return adminUsageError("help topic must be one of:\n  %s", strings.Join(adminTopics, "\n  "))
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), text)
	return err
}

// adminUsage says what verbs there are, and their arguments.
func adminUsage() string {
	var b strings.Builder
	title := func(text string) { fmt.Fprintf(&b, "\n%s\n%s\n\n", text, strings.Repeat("=", len(text))) }
	object := func(verb string, o adminObject) {
		words := []string{verb, o.name}
		for _, keys := range o.mandatory {
			words = append(words, strings.ReplaceAll(keys, "|", "=... OR ")+"=...")
		}
		var optional []string
		for _, f := range o.optional {
			optional = append(optional, f.key+"=...")
		}
		if optional != nil {
			words = append(words, "["+strings.Join(optional, " ")+"]")
		}
		fmt.Fprintf(&b, "  %s\n", strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
	}
	b.WriteString("Subcommands:\n")
	title("Display")
	for _, l := range listable {
		fmt.Fprintf(&b, "  list %s [<column>...]\n", l.name)
	}
	for _, l := range showable {
		fmt.Fprintf(&b, "  show %s [<column>...]\n", l.name)
	}
	title("Object Manipulation")
	for _, group := range []struct {
		verb    string
		objects []adminObject
	}{{"declare", declarable}, {"delete", deletable}, {"close", closable}, {"purge", purgeable}} {
		for _, o := range group.objects {
			object(group.verb, o)
		}
	}
	title("Broker Definitions")
	b.WriteString("  export <file>\n  import <file>\n")
	title("Publishing and Consuming")
	object("publish", publishable)
	object("get", gettable)
	b.WriteString("\n  * If payload is not specified on publish, standard input is used\n\n" +
		"  * If payload_file is not specified on get, the payload will be shown on\n    standard output along with the message metadata\n\n" +
		"  * If payload_file is specified on get, count must not be set")
	return b.String()
}
